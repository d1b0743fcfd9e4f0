"""Which words are about what the camera shows. A camera is on through a whole conversation, most of which is about other things.

So a question must point at what is there: by seeing, by the camera or the picture, by "me", "my" and "this", or by one of the kinds
of object with nothing behind it that leads elsewhere ("is there a train to London?").
"""

from __future__ import annotations

import enum
import re

from engines.vision.labels import asked


class About(enum.Enum):
    """What of the camera is asked about."""

    NOW = "now"
    BEFORE = "before"
    CHANGE = "change"


_PLACE = (
    r"(table|desk|wall|floor|room|shelf|bed|chair|couch|sofa|window|door|left|right|middle|centre|center|corner|background|"
    r"foreground|box|bag|cup|bowl|plate|hand|scene|frame|view|shot|picture|image|photo|screen|#)"
)
_THING = (
    r"(sign|label|note|paper|page|card|poster|board|whiteboard|screen|shirt|t-shirt|box|bottle|letter|text|display|sticker|banner|"
    r"badge|writing|caption|headline|cover|menu|message|door|wall|plate|#)"
)
_HERE = (
    r"(here|there|now|right now|again|else|still|yet|too|today|visible|holding .*|wearing .*|sitting.*|standing.*|lying.*|"
    r"(that )?(you|we) (can )?see.*|behind .*|in front of .*|next to .*|beside .*|near (me|us|the .*)|around( me| here)?|with (me|us)|"
    rf"(on|in|at|under|by|to) (the|my|this|that|your|our) (\w+ )?{_PLACE}.*|on it|in it|or .*|and .*)"
)
_END = r"[\s.?!,]*$"
_ARTICLE = r"(an? |any |some |the |my |our |your |this |that |these |those |one |two |three |more than one )*"

_NOW = tuple(
    re.compile(pattern)
    for pattern in (
        # seeing
        r"\b(do|can|could|are) (you|we) ((even|still|now|also|actually|really|already|currently|just) )*"
        r"(see|seeing|spot|notice|make out|recogni[sz]e|watching|looking at)\b",
        r"\bwhat (else )?(you|it|we) (can |could )?(see|sees)\b",
        r"\byou (can |could )(still )?see\b|\bsee (me|us)\b(?! (to-?morrow|later|soon|again|at|on|next))",
        r"\b(have a |take a )?look(ing)? at (this|that|me|us|my|these|those|what)\b",
        rf"\b(have a |take a )?look(ing)? at the #( {_HERE})?" + _END,
        r"\b(have|take) a look\b" + _END,
        r"\b(how do|do|what do) (i|we) look\b",
        r"\bable to see (me|us|this|that|the|my|it|any\w*)\b",
        r"\bhow (do|does|did) (my|this|that|it|these|those|the #) (\w+ )?look\b" + _END,
        # the camera and its picture
        r"\bdescribe (the |this |my |our )?(room|scene|surroundings|view|background)\b",
        r"\b(the|my|your|this) (web)?cam(era)?\b(?! (on|off)\b)",
        r"\b(in|on|of|about|describe|from) (the |this |that |my |your )?(picture|photo|image|frame|shot|scene|background|foreground)\b",
        r"\bin (the |my |your )?(view|camera|room|background)" + _END,
        # me and mine
        r"\b(behind|beside|next to|in front of|around|above) (me|us)\b|\bin front of (you|the camera)\b",
        r"\bon my (left|right|head|lap|desk|table|shirt|t-shirt|wall|shelf|shoulder|face|hat)\b",
        r"\bin my (hand|hands|lap|room|arms)\b",
        r"\b(am i|are we|i am|i'm) (still )?(holding|wearing|showing|pointing|visible|alone|smiling|sitting|standing|in (the|your))\b",
        r"\bwhat (am i|are we) (doing|eating|drinking|reading|looking at|touching|carrying)( now| right now| here)?" + _END,
        r"\bwhat (is|are) (he|she|they) (holding|wearing|carrying)\b|\bwhat is (going on|happening) (here|there|in the room)" + _END,
        r"\b(where am i|how many fingers|who am i|do you (know|recogni[sz]e) me)\b",
        # this and that
        r"\b(what|who|which|whose) (is|are|#) (is |are )?(this|that|these|those|it|here|there|over there)( (thing|things|object|objects|"
        r"here|there|over there|person|animal|one|#|kind of thing))*" + _END,
        r"\b(what|who) (this|that|these|those|it) (is|are)( (here|there|called))?" + _END,
        r"\bwhat (do|would) you (think|say) (this|that|these|those|it) (is|are)\b",
        r"\b(what|which) (object|thing|item|animal|fruit|building|place|flower|food|#) (is|are) (this|that|these|those|it)\b",
        r"\b(what|which) (kind|type|sort|brand|breed|make|model) of (\w+|#) (is|are) (this|that|these|those|it)\b",
        r"\b(is|are|was) (this|that|these|those|it) " + _ARTICLE + r"(\w+ )?(\w+ or (an? )?)?#( or .*)?" + _END,
        r"\bwho (else )?is (in|on|at|with|sitting|standing|behind|next to) (the|my|this|me|us)\b(?! (white|world|team))",
        rf"\bwhat (else )?(is|are|do we have|do i have) (on|in|under|at|to|by|near|next to) (the|my|this|that) (\w+ )?{_PLACE}" + _END,
        r"\b(is|was) (it|the room|the light) (too |very |so |quite )?(dark|bright|dim|on)( (in )?here| enough)?" + _END,
        # text
        rf"\bwhat (does|do|did) (it|this|that|they|(the|my|this|that|these|those) (\w+ )?{_THING}s?) (say|read)( here| there| on it)?" + _END,
        rf"\bwhat \w+ (is|are) on (the|my|this|that) (\w+ )?{_THING}" + _END,
        rf"\b(what is|what's) (written|printed|on (the|my|this|that) (\w+ )?{_THING})",
        rf"\bread (it|this|that|what|(the|my|this|that) (\w+ )?{_THING}s?)([ ,]+(to me|aloud|out|out loud|for me|please|here|there|says|it says))*" + _END,
        r"\b(is|are) there (any )?(text|writing|words|letters|a sign)\b",
        # colours
        r"\b(what|which) colou?rs? (is|are|was|were|has|have|does|do|can) (it|this|that|these|those|my|you|there|the (wall|walls|floor|background|"
        r"sign|shirt|t-shirt|room|jacket|hat|picture|image|thing|object|door|curtain|curtains))\b",
        r"\bcolou?rs? of (my|this|that)\b|\bcolou?rs? am i\b",
        rf"\b((what|which) colou?rs? (is|are|was|were|has|have)|colou?rs? of) the #( {_HERE})?" + _END,
        # kinds of object
        r"\b(is|are|was) (there|here|this|that) (still )?" + _ARTICLE + rf"(\w+ )?#( {_HERE})?" + _END,
        r"\b(is|are) (there )?" + _ARTICLE + rf"# (still )?{_HERE}" + _END,
        r"\bhow many #( (are|is) (there|here|visible)| do (you|we) see| can (you|we) see| do i have| am i .*| are you .*)"
        rf"?( {_HERE})?" + _END,
        rf"\bhow many # (are|is) {_HERE}" + _END,
        r"\bwhere (is|are|did you see) " + _ARTICLE + "#" + rf"( {_HERE})?" + _END,
        r"\bwhat (is|are) " + _ARTICLE + r"# (doing|holding|wearing|eating|reading|looking at)\b",
        r"\bdo i have " + _ARTICLE + rf"#( {_HERE})" + _END,
        r"^(and |so |ok |okay )*any # (here|there|in (the|my) \w+)?" + _END,
    )
)  # fmt: skip
_EARLIER = r"(just )?(before|earlier|just now|a (moment|minute|second|while) ago|previously|until now|so far)( that| now| this)?"
_BEFORE = re.compile(
    r"\b(what|who|which #|how many #) (else )?(was|were) ((there|here|it|that|this|behind me|(in|on) (the|my|your) (\w+|#)) )?"
    + _EARLIER + _END + r"|\b(did|have|had|could) you (see|seen)\b.*\b" + _EARLIER + _END
    + r"|\bwhat (have you seen|did you see)" + _END
)  # fmt: skip
_CHANGE = re.compile(
    r"\b(what|anything|something|did (it|anything|the (picture|scene))|has (anything|something|the (picture|scene))) (has |just |have )*"
    r"(changed?|moved)( (now|just now|here|there|in the (picture|scene|room|image|view)|since .*))?"
    + _END
    + r"|"
    r"\bwhat is (different|new) (here|in the (picture|scene|room|image|view))\b|\bwhat is different( now)?"
    + _END
    + r"|"
    r"\bwhat (has )?(just )?happened( (here|just now|in front of (me|you|the camera)))" + _END
)
_NOT = re.compile(
    r"\b(see|know) what i mean\b|\bsee (you|ya)\b|\bsee (why|how|that i|that you|my point|if|whether)\b|\b(the|a) (big|bigger) picture\b|"
    r"\bget the picture\b|\blook(ing)? (forward|up|for|after)\b|\bcan you see (to|about)\b|\b(buy|sell|choose|recommend)\b"
)
_AGAIN = re.compile(
    r"^((and|so|ok|okay|what about|how about|but)[ ,]+)*(now|on (the|my) (left|right)|in the (middle|centre|center|background)|"
    r"(is )?anything else|what else|else|still|are you sure|(an?|the|any|my) #|#|how many( are there)?|who( is (it|that))?|where|behind (me|you|it))( now| here| there)?"
    + _END
)
_SPELLINGS: tuple[tuple[str, str], ...] = (
    ("what's", "what is"), ("who's", "who is"), ("where's", "where is"), ("that's", "that is"), ("there's", "there is"),
    ("it's", "it is"), ("what're", "what are"), ("i'm", "i am"),
    # as recognisers write what they hear
    ("any one", "anyone"), ("some one", "someone"), ("any body", "anybody"), ("some body", "somebody"),
    ("is their ", "is there "), ("are their ", "are there "),
)  # fmt: skip
_LONGEST = 400
"""Characters: what a long text is about, its end says."""


def spelled_out(question: str) -> str:
    """The end of it in lower case, with one space between words and no contractions that the patterns would have to know."""
    plain = " ".join(question[-_LONGEST:].lower().replace("\u2019", "'").split())
    for found, meant in _SPELLINGS:
        plain = plain.replace(found, meant)
    return plain


def about(question: str) -> About | None:
    """What of the camera a question (as `spelled_out`) is about; None: nothing."""
    _, rest = asked(question)
    if _NOT.search(rest):
        return None
    if _CHANGE.search(rest):
        return About.CHANGE
    if _BEFORE.search(rest):
        return About.BEFORE
    return About.NOW if any(pattern.search(rest) for pattern in _NOW) else None


def goes_on(question: str) -> bool:
    """Whether it goes on from a question about the camera ("and now?", "on the left?")."""
    return bool(_AGAIN.search(asked(question)[1]))
