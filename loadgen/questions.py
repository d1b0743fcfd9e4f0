"""What virtual users say, when no recordings are given. Short, spoken English, no two alike.

None has a pause inside that a fixed-silence rule of 300 ms would take for the end of the turn: a run
measures the server, not where speakers breathe. `--speech DIR` brings other speakers.
"""

from __future__ import annotations

QUESTIONS = (
    "What is the capital city of France?",
    "Can you tell me how far the moon is from the earth?",
    "How many days are there in the month of February?",
    "Why is the sky blue during the day?",
    "What should I cook for dinner tonight?",
    "Tell me a short story about a cat.",
    "How do I take care of a small garden?",
    "What is the best way to learn the guitar?",
    "Which animals live in the desert?",
    "How does a bicycle stay upright?",
    "What is a good book for a long train ride?",
    "Can you explain how rain is made?",
    "Where do penguins live?",
    "How can I sleep better at night?",
    "What is the largest ocean in the world?",
    "Tell me something about the city of London.",
    "How do birds find their way home?",
    "What do bees do in the winter?",
    "Why do leaves change colour in autumn?",
    "How long does it take to boil an egg?",
    "What is the difference between a lake and a sea?",
    "Can you give me a tip for a job interview?",
    "How was the old bridge over the river built?",
    "What makes bread rise in the oven?",
    "Who invented the telephone?",
    "What can I do on a rainy afternoon?",
    "How does a camera take a picture?",
    "Tell me about the life of a farmer.",
    "Why does the moon change its shape?",
    "What is a healthy breakfast for children?",
    "How do I keep my house warm in winter?",
    "What is the fastest animal on land?",
    "Can you describe a walk in the mountains?",
    "How do ships float on water?",
    "What kind of music do people play at weddings?",
    "Why should I drink enough water every day?",
    "How do I teach my dog to sit?",
    "What happens when a volcano erupts?",
    "Tell me why people like to travel.",
    "How does a library know where each book is?",
    "What are the names of the planets?",
    "Can you help me plan a birthday party?",
    "How do doctors find out why someone is ill?",
    "What grows well in a sunny window?",
    "Why do cats sleep so much?",
    "How do I write a letter to a friend?",
    "What did people eat a hundred years ago?",
    "Tell me how chocolate is made.",
)

INTERRUPTIONS = (
    "Wait, please tell me about dogs instead.",
    "Stop and tell me what time the shops close.",
    "Sorry but how tall is a giraffe?",
    "Hold on, what does that mean in simple words?",
    "Can you tell me about the weather in spring instead?",
    "No I wanted to know how trains work.",
    "Which fruit is the sweetest of them all?",
    "Please stop and tell me where coffee comes from.",
    "That is enough, tell me about the stars.",
    "Let me ask how fish can breathe under water.",
    "What is the name of the longest river?",
    "But how much does an elephant weigh?",
)

BACKCHANNELS = ("Yeah.", "Mhm.", "Okay.", "Right.", "Uh huh.", "Yes.", "I see.", "Sure.")
