// Samples and their spelling on the wire: s16le in base64. Pure.

/** Float32 in [-1, 1] to Int16; louder is clipped. */
export function toInt16(samples) {
  const out = new Int16Array(samples.length);
  for (let i = 0; i < samples.length; i++) {
    out[i] = Math.round(Math.max(-1, Math.min(1, samples[i])) * 32767);
  }
  return out;
}

/** Int16Array to base64. */
export const encode = (samples) => toBase64(new Uint8Array(samples.buffer, samples.byteOffset, samples.byteLength));

/** Uint8Array to base64. */
export function toBase64(bytes) {
  let text = '';
  for (let i = 0; i < bytes.length; i += 8192) text += String.fromCharCode(...bytes.subarray(i, i + 8192));
  return btoa(text);
}

/** Base64 to Int16Array; an odd last byte is dropped. */
export function decode(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length - (raw.length % 2));
  for (let i = 0; i < bytes.length; i++) bytes[i] = raw.charCodeAt(i);
  return new Int16Array(bytes.buffer);
}

/** Root mean square of samples in [-1, 1]. */
export function loudness(samples) {
  let sum = 0;
  for (let i = 0; i < samples.length; i++) sum += samples[i] * samples[i];
  return samples.length === 0 ? 0 : Math.sqrt(sum / samples.length);
}

/** A level for a meter: 0 at -60 dBFS and below, 1 at full scale. */
export const meterLevel = (rms) => (rms <= 0 ? 0 : Math.max(0, Math.min(1, 1 + (20 * Math.log10(rms)) / 60)));
