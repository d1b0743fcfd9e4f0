// What the user can choose, and how that is said to the server. Pure.

export const VOICES = ['alloy', 'ash', 'ballad', 'cedar', 'coral', 'echo', 'marin', 'sage', 'shimmer', 'verse'];

/** Empty and null: the server's own default. */
export const DEFAULTS = Object.freeze({
  transport: 'webrtc',
  instructions: '',
  voice: '',
  speed: 1,
  detection: 'server_vad',
  threshold: 0.5,
  silenceMs: 500,
  eagerness: 'auto',
  interruptible: true,
  microphone: '',
  echoCancellation: true,
  camera: '',
  cameraSize: '640x480',
  cameraRate: 2,
  overlay: true,
  commentary: false,
});

/** Those that concern the camera alone. */
export const OF_CAMERA = ['camera', 'cameraSize', 'cameraRate', 'overlay', 'commentary'];

const CHOICES = {
  transport: ['webrtc', 'websocket'],
  detection: ['server_vad', 'semantic_vad', 'manual'],
  eagerness: ['auto', 'low', 'medium', 'high'],
  cameraSize: ['320x240', '640x480', '1280x720'],
};
const RANGES = { speed: [0.25, 1.5], threshold: [0, 1], silenceMs: [100, 3000], cameraRate: [1, 10] };

/** Settings out of whatever was stored; what is missing or wrong is the default. */
export function restore(stored) {
  const settings = { ...DEFAULTS };
  if (stored === null || typeof stored !== 'object') return settings;
  for (const [name, standard] of Object.entries(DEFAULTS)) {
    const value = stored[name];
    if (typeof value !== typeof standard) continue;
    if (name in CHOICES && !CHOICES[name].includes(value)) continue;
    if (name in RANGES && !(value >= RANGES[name][0] && value <= RANGES[name][1])) continue;
    settings[name] = value;
  }
  return settings;
}

/** The `session` of a `session.update`. `voiceFixed`: the voice can no longer change. */
export function sessionOf(settings, voiceFixed = false) {
  const output = { speed: settings.speed };
  if (settings.voice !== '' && !voiceFixed) output.voice = settings.voice;
  const session = {
    type: 'realtime',
    audio: {
      input: { transcription: { model: 'default' }, turn_detection: detectionOf(settings) },
      output,
    },
  };
  if (settings.instructions.trim() !== '') session.instructions = settings.instructions;
  return session;
}

function detectionOf(settings) {
  if (settings.detection === 'manual') return null;
  const common = { type: settings.detection, create_response: true, interrupt_response: settings.interruptible };
  if (settings.detection === 'semantic_vad') return { ...common, eagerness: settings.eagerness };
  return { ...common, threshold: settings.threshold, silence_duration_ms: settings.silenceMs };
}
