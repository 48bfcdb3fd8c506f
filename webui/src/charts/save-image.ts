import { cssColor } from "./css-color.ts";

const HEAD = 44; // pixels of CSS, as all distances here

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
  const image = document.createElement("canvas");
  image.width = plot.width;
  image.height = plot.height + HEAD * scale;
  const context = image.getContext("2d");
  if (context === null) throw new Error("this browser has no 2D canvas");
  context.scale(scale, scale);
  context.fillStyle = cssColor("--panel");
  context.fillRect(0, 0, image.width, image.height);
  context.fillStyle = cssColor("--ink");
  context.font = "600 13px Inter Variable, sans-serif";
  context.fillText(title, 10, 18);
  context.font = "12px Inter Variable, sans-serif";
  context.lineWidth = 2.4;
  let left = 10;
  for (const { label, color, dashed } of lines) {
    context.strokeStyle = cssColor(`--series-${color}`);
    context.setLineDash(dashed ? [4, 3] : []);
    context.beginPath();
    context.moveTo(left, 34);
    context.lineTo(left + 14, 34);
    context.stroke();
    context.fillStyle = cssColor("--ink-soft");
    context.fillText(label, left + 19, 38);
    left += 34 + context.measureText(label).width;
  }
  context.drawImage(plot, 0, HEAD, plot.clientWidth, plot.height / scale);
  image.toBlob((blob) => { if (blob !== null) saveBlob(blob, name); }, "image/png");
}
