import { AXIS_HEIGHT, axisLabel, boxOf, isVisible, LABEL_WIDTH, ticks, timeToX, VERSION_STRIP_HEIGHT, type Bar, type Box, type Lane, type View } from "./layout.ts";

const VERSION_COLORS = 5; // the sixth series color is too close to the first, which follows it
const PIXELS_PER_TICK = 90;

export type Palette = { versions: string[]; ink: string; faint: string; soft: string; line: string; grid: string; panel: string; sunken: string; font: string };

export function readPalette(element: Element): Palette {
  const style = getComputedStyle(element);
  const color = (name: string) => style.getPropertyValue(`--${name}`).trim();
  return {
    versions: Array.from({ length: VERSION_COLORS }, (_, index) => color(`series-${index + 1}`)),
    ink: color("ink"), faint: color("ink-faint"), soft: color("ink-soft"), line: color("line-strong"), grid: color("grid"),
    panel: color("panel"), sunken: color("panel-sunken"), font: style.fontFamily,
  };
}

type Scene = { lanes: Lane[]; view: View; origin: number; width: number; height: number; hovered: Bar | null };

export function draw(context: CanvasRenderingContext2D, scene: Scene, palette: Palette) {
  const { lanes, view, width, height } = scene;
  context.clearRect(0, 0, width, height);
  context.textBaseline = "middle";
  drawAxis(context, scene, palette);
  for (const lane of lanes) {
    context.fillStyle = palette.sunken;
    context.fillRect(LABEL_WIDTH, lane.top, width - LABEL_WIDTH, lane.height);
    context.font = `600 12px ${palette.font}`;
    context.fillStyle = palette.ink;
    context.fillText(lane.name, 0, lane.top + 8, LABEL_WIDTH - 8);
    for (const stretch of lane.versions) {
      if (stretch.end < view.from || stretch.start > view.to) continue;
      const left = Math.max(LABEL_WIDTH, timeToX(stretch.start, view, width));
      const box = { left, width: Math.min(width, timeToX(stretch.end, view, width)) - left, top: lane.top, height: VERSION_STRIP_HEIGHT };
      context.fillStyle = palette.versions[stretch.version % VERSION_COLORS]!;
      context.fillRect(box.left, box.top, Math.max(1, box.width), 3);
      drawVersion(context, stretch.version, { ...box, top: box.top + 2 }, true, palette);
    }
    const visible = lane.bars.filter((bar) => isVisible(bar.span, view));
    // What the whole engine does lies behind the bars of its trajectories.
    for (const bar of visible.filter((one) => one.row === null)) drawBar(context, bar, boxOf(bar, lane, view, width), palette);
    for (const bar of visible.filter((one) => one.row !== null)) drawBar(context, bar, boxOf(bar, lane, view, width), palette);
    if (scene.hovered !== null && visible.includes(scene.hovered)) {
      const box = boxOf(scene.hovered, lane, view, width);
      context.strokeStyle = palette.ink;
      context.lineWidth = 2;
      context.strokeRect(box.left - 1, box.top - 1, box.width + 2, box.height + 2);
    }
  }
}

function drawAxis(context: CanvasRenderingContext2D, { view, origin, width, height }: Scene, palette: Palette) {
  context.font = `12px ${palette.font}`;
  context.strokeStyle = palette.grid;
  context.lineWidth = 1;
  for (const time of ticks(view, origin, (width - LABEL_WIDTH) / PIXELS_PER_TICK)) {
    const x = Math.round(timeToX(time, view, width)) + 0.5;
    context.beginPath();
    context.moveTo(x, AXIS_HEIGHT);
    context.lineTo(x, height);
    context.stroke();
    context.fillStyle = palette.soft;
    context.fillText(axisLabel(time - origin), x + 4, AXIS_HEIGHT / 2, 80);
  }
}

/** Color is the policy version; the shape says what happens, so that color is never alone. */
export function drawBar(context: CanvasRenderingContext2D, { span, row }: Bar, box: Box, palette: Palette) {
  const color = span.version === null ? palette.faint : palette.versions[span.version % VERSION_COLORS]!;
  switch (span.kind) {
    case "wait":
      context.fillStyle = palette.line;
      context.fillRect(box.left, box.top + box.height / 2 - 1, box.width, 2);
      return;
    case "load":
      context.fillStyle = palette.panel;
      context.fillRect(box.left, box.top, box.width, box.height);
      hatch(context, box, color);
      context.strokeStyle = color;
      context.lineWidth = 1;
      context.strokeRect(box.left + 0.5, box.top + 0.5, Math.max(0, box.width - 1), box.height - 1);
      break;
    case "reward":
      context.strokeStyle = color;
      context.lineWidth = 1;
      context.strokeRect(box.left + 0.5, box.top + 1, Math.max(1, box.width - 1), Math.max(1, box.height - 2));
      return;
    case "publish":
      context.fillStyle = palette.panel;
      context.fillRect(box.left, box.top, box.width, box.height);
      context.strokeStyle = color;
      context.lineWidth = 2;
      context.strokeRect(box.left + 1, box.top + 1, Math.max(1, box.width - 2), box.height - 2);
      break;
    case "evaluate":
      context.globalAlpha = 0.3;
      context.fillStyle = color;
      context.fillRect(box.left, box.top, box.width, box.height);
      context.globalAlpha = 1;
      break;
    case "checkpoint":
      context.fillStyle = palette.faint;
      context.fillRect(box.left, box.top, box.width, box.height);
      return;
    default:
      context.fillStyle = color;
      context.fillRect(box.left, box.top, box.width, box.height);
      if (span.outcome === "interrupted" || span.outcome === "lost") {
        context.fillStyle = palette.ink;
        context.fillRect(box.left + box.width - 1.5, box.top, 1.5, box.height);
      }
  }
  drawVersion(context, span.version, box, row === null && span.kind !== "load" && span.kind !== "publish", palette);
}

/** The version's number, in bars that are wide enough. */
function drawVersion(context: CanvasRenderingContext2D, version: number | null, box: Box, isLarge: boolean, palette: Palette) {
  if (version === null || box.height < 9) return;
  const text = `v${version}`;
  context.font = `600 ${isLarge ? 12 : 10}px ${palette.font}`;
  if (context.measureText(text).width + 6 > box.width) return;
  // On a plate of the panel's color: readable on every version's color, in both themes.
  const width = context.measureText(text).width + 4;
  const height = Math.min(box.height - 1, isLarge ? 15 : 11);
  const middle = box.top + box.height / 2;
  context.fillStyle = palette.panel;
  context.fillRect(box.left + 2, middle - height / 2, width, height);
  context.fillStyle = palette.ink;
  context.fillText(text, box.left + 4, middle + 0.5);
}

function hatch(context: CanvasRenderingContext2D, box: Box, color: string) {
  context.save();
  context.beginPath();
  context.rect(box.left, box.top, box.width, box.height);
  context.clip();
  context.strokeStyle = color;
  context.lineWidth = 1.5;
  context.beginPath();
  for (let x = box.left - box.height; x < box.left + box.width; x += 5) {
    context.moveTo(x, box.top + box.height);
    context.lineTo(x + box.height, box.top);
  }
  context.stroke();
  context.restore();
}
