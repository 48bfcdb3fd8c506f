/** Save a file that the page made. */
export function saveBlob(blob: Blob, name: string): void {
  const url = URL.createObjectURL(blob);
  Object.assign(document.createElement("a"), { href: url, download: name }).click();
  URL.revokeObjectURL(url);
}

type Labeled = { label: string; color: number; dashed?: boolean };

/** Save a chart as it is drawn, below its title and the names of its lines, in the colors of the theme. */
export function saveImage(plot: HTMLCanvasElement, title: string, lines: Labeled[], name: string): void {
  const scale = plot.width / plot.clientWidth;
  const style = getComputedStyle(document.documentElement);
  const color = (variable: string) => style.getPropertyValue(variable).trim();
  const image = document.createElement("canvas");
  const head = 44 * scale;
  image.width = plot.width;
  image.height = plot.height + head;
  const context = image.getContext("2d");
  if (context === null) throw new Error("this browser has no 2D canvas");
  context.fillStyle = color("--panel");
  context.fillRect(0, 0, image.width, image.height);
  context.fillStyle = color("--ink");
  context.font = `600 ${13 * scale}px Inter Variable, sans-serif`;
  context.fillText(title, 10 * scale, 18 * scale);
  context.font = `${12 * scale}px Inter Variable, sans-serif`;
  let left = 10 * scale;
  for (const line of lines) {
    context.strokeStyle = color(`--series-${line.color}`);
    context.lineWidth = 2.4 * scale;
    context.setLineDash(line.dashed ? [4 * scale, 3 * scale] : []);
    context.beginPath();
    context.moveTo(left, 34 * scale);
    context.lineTo(left + 14 * scale, 34 * scale);
    context.stroke();
    context.fillStyle = color("--ink-soft");
    context.fillText(line.label, left + 19 * scale, 38 * scale);
    left += (34 + context.measureText(line.label).width / scale) * scale;
  }
  context.drawImage(plot, 0, head);
  image.toBlob((blob) => { if (blob !== null) saveBlob(blob, name); }, "image/png");
}
