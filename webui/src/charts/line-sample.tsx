/** A piece of a line as the charts draw it, for legends. */
export function LineSample({ color, dashed, width = 14 }: { color: number; dashed: boolean; width?: number }) {
  return (
    <svg width={width} height="8" aria-hidden style={{ flex: "none" }}>
      <line x1="0" y1="4" x2={width} y2="4" stroke={`var(--series-${color})`} strokeWidth="2.4" strokeDasharray={dashed ? "4 3" : undefined} />
    </svg>
  );
}
