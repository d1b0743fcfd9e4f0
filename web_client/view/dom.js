// Small words for the document.

export const find = (selector) => document.querySelector(selector);

/** An element with properties and children; `class` and attributes with a dash work too. */
export function make(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in element) element[key] = value;
    else element.setAttribute(key === 'className' ? 'class' : key, value);
  }
  element.append(...children);
  return element;
}

/** Call `work` at most once a frame. */
export function eachFrame(work) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      work();
    });
  };
}
