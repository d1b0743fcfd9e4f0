// What a person with a screen reader, a keyboard or weak eyes would stumble over, found in the document.

const CONTROLS = 'button, input, select, textarea, canvas, meter, video, summary, a[href], [tabindex]';

const shown = (element) => element.checkVisibility({ visibilityProperty: true }) && element.getClientRects().length > 0;

const label = (element) => `${element.tagName.toLowerCase()}${element.id ? `#${element.id}` : ''}${element.name ? `[${element.name}]` : ''}`;

function nameOf(element) {
  const by = element.getAttribute('aria-labelledby');
  if (by !== null) return by.split(/\s+/).map((id) => document.getElementById(id)?.textContent ?? '').join(' ').trim();
  return (element.getAttribute('aria-label') ?? [...element.labels ?? []].map((one) => one.textContent).join(' ')).trim()
    || (['BUTTON', 'SUMMARY', 'A'].includes(element.tagName) ? element.textContent.trim() : '');
}

function faultsOfNames() {
  const faults = [...document.querySelectorAll(CONTROLS)].filter((e) => nameOf(e) === '').map((e) => `${label(e)} has no name`);
  for (const e of document.querySelectorAll('section')) if (nameOf(e) === '') faults.push(`${label(e)} has no name`);
  for (const e of document.querySelectorAll('img')) if (!e.hasAttribute('alt')) faults.push(`${label(e)} has no alt`);
  for (const name of ['aria-labelledby', 'aria-describedby', 'aria-controls', 'for']) {
    for (const e of document.querySelectorAll(`[${name}]`)) {
      for (const id of e.getAttribute(name).split(/\s+/)) if (document.getElementById(id) === null) faults.push(`${label(e)}: no ${id}`);
    }
  }
  const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
  faults.push(...ids.filter((id, k) => ids.indexOf(id) !== k).map((id) => `two elements are ${id}`));
  if (document.documentElement.lang === '') faults.push('no language');
  if (document.title === '') faults.push('no title');
  if (document.querySelectorAll('h1').length !== 1) faults.push('not one h1');
  if (document.querySelectorAll('main').length !== 1) faults.push('not one main');
  const levels = [...document.querySelectorAll('h1, h2, h3, h4')].map((e) => Number(e.tagName[1]));
  levels.forEach((level, k) => k > 0 && level > levels[k - 1] + 1 && faults.push('a level of headings is left out'));
  return faults;
}

const pen = Object.assign(document.createElement('canvas'), { width: 1, height: 1 }).getContext('2d', { willReadFrequently: true });

function rgba(colour) {
  pen.clearRect(0, 0, 1, 1);
  pen.fillStyle = colour;
  pen.fillRect(0, 0, 1, 1);
  const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
  return [r, g, b, a / 255];
}

const over = ([r, g, b, a], [x, y, z]) => [r * a + x * (1 - a), g * a + y * (1 - a), b * a + z * (1 - a)];

function behind(element) {
  if (element === null) return matchMedia('(prefers-color-scheme: dark)').matches ? [18, 18, 18] : [255, 255, 255];
  return over(rgba(getComputedStyle(element).backgroundColor), behind(element.parentElement));
}

function luminance(colour) {
  const [r, g, b] = colour.map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/** Texts whose contrast to what lies behind them is less than `least`; controls that are switched off do not count. */
function faintTexts(least) {
  const found = [];
  for (const element of document.querySelectorAll('body *')) {
    const text = [...element.childNodes].filter((n) => n.nodeType === 3).map((n) => n.data.trim()).join('');
    if (text === '' || !shown(element) || element.closest(':disabled, .hidden-text, .skip, noscript, script, option')) continue;
    const back = behind(element);
    const [light, dark] = [luminance(over(rgba(getComputedStyle(element).color), back)), luminance(back)].sort((a, b) => b - a);
    const contrast = (light + 0.05) / (dark + 0.05);
    if (contrast < least) found.push(`${label(element)} "${text.slice(0, 30)}": ${contrast.toFixed(2)}`);
  }
  return found;
}

/** What can be reached by the tab key, by its label. */
function reachable() {
  return [...document.querySelectorAll(CONTROLS)]
    .filter((e) => e.tabIndex >= 0 && !e.disabled && shown(e) && !['METER', 'VIDEO'].includes(e.tagName)).map(label);
}

/** The label of what has the focus, and whether that can be seen. */
function focused() {
  const element = document.activeElement;
  const { outlineStyle, outlineWidth } = getComputedStyle(element);
  return [label(element), outlineStyle !== 'none' && parseFloat(outlineWidth) > 0];
}

/** What reaches beyond the sides of the screen without a way to scroll it. */
function sticksOut() {
  const scrolls = (e) => e !== null && (['auto', 'scroll', 'hidden'].includes(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
  const wide = [...document.querySelectorAll('body *')]
    .filter((e) => shown(e) && !scrolls(e.parentElement) && !e.closest('.hidden-text, .skip') && e.getBoundingClientRect().right > innerWidth + 1);
  return [...wide.map(label), ...(document.documentElement.scrollWidth > innerWidth ? ['the page'] : [])];
}
