// The camera's picture, for the user only: nothing of it is sent.

export class CameraView {
  constructor(video, checkbox, note) {
    this.video = video;
    this.note = note;
    this.stream = null;
    checkbox.addEventListener('change', async () => {
      if (!checkbox.checked) return this.stop();
      try {
        this.stream = await navigator.mediaDevices.getUserMedia({ video: { width: 640, height: 480 } });
        this.video.srcObject = this.stream;
        this.video.hidden = false;
        await this.video.play();
      } catch (error) {
        checkbox.checked = false;
        this.note.textContent = `The camera cannot be opened: ${error.message}`;
      }
      return undefined;
    });
  }

  stop() {
    for (const track of this.stream?.getTracks() ?? []) track.stop();
    this.stream = null;
    this.video.srcObject = null;
    this.video.hidden = true;
  }
}
