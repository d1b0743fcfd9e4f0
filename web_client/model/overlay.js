// Where boxes and their labels go on a preview. Pure; pixels of the style sheet, boxes as shares of the picture.

/** The part of an element that a picture fills which is shown whole (object-fit: contain): [x, y, width, height]. */
export function shownPart(width, height, pictureWidth, pictureHeight) {
  if (!(pictureWidth > 0 && pictureHeight > 0)) return [0, 0, width, height];
  const scale = Math.min(width / pictureWidth, height / pictureHeight);
  const [w, h] = [pictureWidth * scale, pictureHeight * scale];
  return [(width - w) / 2, (height - h) / 2, w, h];
}

/** Whether what was looked at has the shape of what is shown; if not, it was another picture (another source, turned). */
export function sameShape(width, height, otherWidth, otherHeight) {
  if (!(width > 0 && height > 0 && otherWidth > 0 && otherHeight > 0)) return false;
  return Math.abs(Math.log((width * otherHeight) / (height * otherWidth))) < 0.08;
}

/** Boxes and labels to be drawn in `part`: [{ x, y, w, h, sure, text, label: [x, y, w, h] }]. `measure(text)`: its width.
 * A label stands on its box, or inside it where there is no room above, moves down where another one is, and stays in `part`. */
export function placed(objects, part, measure, lineHeight = 18) {
  const [left, top, width, height] = part;
  const taken = [];
  return objects.map(({ kind, sure, box }) => {
    const [l, t, r, b] = box.map((share) => Math.min(1, Math.max(0, share)));
    const [x, y] = [left + l * width, top + t * height];
    const text = sure ? kind : `${kind}?`;
    const w = Math.min(width, measure(text) + 8);
    const labelX = Math.max(left, Math.min(x, left + width - w));
    let labelY = y - lineHeight >= top ? y - lineHeight : y;
    const hit = ([ox, oy, ow]) => labelX < ox + ow && ox < labelX + w && Math.abs(oy - labelY) < lineHeight;
    while (taken.some(hit) && labelY + 2 * lineHeight <= top + height) labelY += lineHeight / 2;
    const label = [labelX, Math.min(labelY, top + height - lineHeight), w, lineHeight];
    taken.push(label);
    return { x, y, w: (r - l) * width, h: (b - t) * height, sure, text, label };
  });
}
