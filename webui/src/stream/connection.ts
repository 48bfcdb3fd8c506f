/** The WebSocket of a page. Subscribes to topics, delivers frames, and resumes after the last frame on reconnect. */

export type Frame = { topic: string; seq: number; type: string; ts?: string; data: unknown };

export type StreamState = {
  status: "idle" | "connecting" | "live" | "reconnecting";
  /** Time (Date.now) since which the page may be out of date. Null while messages arrive from the server. */
  staleSince: number | null;
  frames: number;
};

export type Listener = {
  onFrame: (frame: Frame) => void;
  /** Frames up to `lostUpTo` are no longer available: fetch the state over REST, then call `resumeAfter` with its seq. */
  onGap: (resumeAfter: (seq: number) => void, lostUpTo: number) => void;
};

type Subscription = Listener & { topic: string; seq: number | null; waitingForRefetch: boolean };

/** Browser functions that the connection uses. Tests pass their own. */
export type Environment = {
  open: () => WebSocketLike;
  now: () => number;
  after: (milliseconds: number, then: () => void) => () => void;
};

export type WebSocketLike = {
  send: (text: string) => void;
  close: () => void;
  onopen: (() => void) | null;
  onclose: ((event: { code: number }) => void) | null;
  onmessage: ((event: { data: unknown }) => void) | null;
};

const STALE_AFTER_MILLISECONDS = 20_000; // the server pings every 15 seconds, so this is one missed ping
const DEAD_AFTER_MILLISECONDS = 45_000; // close the connection after this time without a message
const OPEN_WITHIN_MILLISECONDS = 15_000; // a hung server accepts a connection and never answers
const UNAUTHENTICATED = 4401;

export class StreamConnection {
  private readonly environment: Environment;
  private readonly subscriptions = new Set<Subscription>();
  private readonly watchers = new Set<() => void>();
  private socket: WebSocketLike | null = null;
  private isOpen = false;
  private failures = 0;
  private cancelRetry: (() => void) | null = null;
  private cancelDeadTimer: (() => void) | null = null;
  private cancelStaleTimer: (() => void) | null = null;
  private lastMessageAt: number;
  private state: StreamState = { status: "idle", staleSince: null, frames: 0 };
  /** Called when the server rejects the session (close code 4401). */
  onUnauthenticated: () => void = () => {};

  constructor(environment: Environment) {
    this.environment = environment;
    this.lastMessageAt = environment.now();
  }

  /** Subscribe to `topic` after `seq` (null: from now on). Returns a function that unsubscribes. */
  subscribe(topic: string, seq: number | null, listener: Listener): () => void {
    const subscription: Subscription = { ...listener, topic, seq, waitingForRefetch: false };
    this.subscriptions.add(subscription);
    if (this.isOpen) this.sendSubscribe(topic);
    else this.connect();
    return () => {
      this.subscriptions.delete(subscription);
      const others = [...this.subscriptions].some((other) => other.topic === topic);
      if (!others && this.isOpen) this.socket?.send(JSON.stringify({ op: "unsubscribe", topic }));
      if (this.subscriptions.size === 0) this.disconnect();
    };
  }

  getState = (): StreamState => this.state;

  watch = (changed: () => void): (() => void) => {
    this.watchers.add(changed);
    return () => this.watchers.delete(changed);
  };

  private updateState(change: Partial<StreamState>): void {
    this.state = { ...this.state, ...change };
    for (const changed of this.watchers) changed();
  }

  private connect(): void {
    if (this.socket !== null) return;
    this.cancelRetry?.();
    this.cancelRetry = null;
    if (this.failures === 0) this.updateState({ status: "connecting" });
    const socket = this.environment.open();
    this.socket = socket;
    this.cancelDeadTimer?.();
    this.cancelDeadTimer = this.environment.after(OPEN_WITHIN_MILLISECONDS, () => this.abandonSocket());
    socket.onopen = () => {
      this.isOpen = true;
      this.failures = 0;
      this.recordMessage();
      for (const topic of new Set([...this.subscriptions].map((entry) => entry.topic))) this.sendSubscribe(topic);
      this.updateState({ status: "live", staleSince: null });
    };
    socket.onmessage = (event) => {
      this.recordMessage();
      this.receive(JSON.parse(String(event.data)) as Frame);
    };
    socket.onclose = (event) => this.onClosed(event.code);
  }

  private disconnect(): void {
    this.cancelRetry?.();
    this.cancelDeadTimer?.();
    this.cancelStaleTimer?.();
    this.closeSocket();
    this.isOpen = false;
    this.failures = 0;
    this.updateState({ status: "idle", staleSince: null });
  }

  private closeSocket(): void {
    const socket = this.socket;
    this.socket = null;
    if (socket === null) return;
    socket.onclose = null;
    socket.onmessage = null;
    socket.onopen = null;
    socket.close();
  }

  /** Give up on a socket that the server does not answer, without waiting for the browser to notice. */
  private abandonSocket(): void {
    if (this.socket === null) return;
    this.closeSocket();
    this.onClosed(1006);
  }

  private onClosed(code: number): void {
    this.socket = null;
    this.isOpen = false;
    this.cancelDeadTimer?.();
    this.cancelStaleTimer?.();
    if (code === UNAUTHENTICATED) this.onUnauthenticated();
    if (this.subscriptions.size === 0) return;
    this.failures += 1;
    this.updateState({ status: "reconnecting", staleSince: this.state.staleSince ?? this.lastMessageAt });
    const wait = Math.min(15_000, 500 * 2 ** (this.failures - 1)) * (0.75 + 0.5 * Math.random());
    this.cancelRetry = this.environment.after(wait, () => this.connect());
  }

  /** Restart the timers for a stale and for a dead connection. */
  private recordMessage(): void {
    this.lastMessageAt = this.environment.now();
    this.cancelDeadTimer?.();
    this.cancelStaleTimer?.();
    if (this.state.status === "live" && this.state.staleSince !== null) this.updateState({ staleSince: null });
    this.cancelStaleTimer = this.environment.after(STALE_AFTER_MILLISECONDS, () => {
      if (this.state.status === "live") this.updateState({ staleSince: this.lastMessageAt });
    });
    this.cancelDeadTimer = this.environment.after(DEAD_AFTER_MILLISECONDS, () => this.abandonSocket());
  }

  /** Subscribe from the oldest position that any listener of the topic needs. Each listener skips frames that it has seen. */
  private sendSubscribe(topic: string): void {
    const positions = [...this.subscriptions].filter((entry) => entry.topic === topic).map((entry) => entry.seq);
    const known = positions.filter((seq): seq is number => seq !== null);
    const message: Record<string, unknown> = { op: "subscribe", topic };
    if (known.length > 0) message["after_seq"] = Math.min(...known);
    this.socket?.send(JSON.stringify(message));
  }

  private receive(frame: Frame): void {
    if (frame.type === "ping") return;
    this.updateState({ frames: this.state.frames + 1 });
    for (const subscription of [...this.subscriptions]) {
      if (subscription.topic !== frame.topic) continue;
      if (frame.type === "subscribed") {
        subscription.seq ??= frame.seq;
      } else if (frame.type === "gap") {
        this.refetch(subscription, frame);
      } else if (!subscription.waitingForRefetch && (subscription.seq === null || frame.seq > subscription.seq)) {
        subscription.seq = frame.seq;
        subscription.onFrame(frame);
      }
    }
  }

  private refetch(subscription: Subscription, gap: Frame): void {
    const lostUpTo = (gap.data as { to?: number } | null)?.to ?? gap.seq;
    if (subscription.seq !== null && lostUpTo <= subscription.seq) return;
    if (subscription.waitingForRefetch) return;
    subscription.waitingForRefetch = true;
    subscription.onGap((seq) => {
      subscription.waitingForRefetch = false;
      subscription.seq = seq;
      // Frames that arrived during the refetch were skipped: request them again.
      if (this.isOpen && this.subscriptions.has(subscription)) this.sendSubscribe(subscription.topic);
    }, lostUpTo);
  }
}
