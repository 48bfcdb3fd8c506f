/** The one WebSocket of a page: topics in, frames out, resumed after every break from the last frame seen. */

export type Frame = { topic: string; seq: number; type: string; ts?: string; data: unknown };

export type StreamState = {
  status: "idle" | "connecting" | "live" | "reconnecting";
  /** Milliseconds (Date.now) since when what is shown may be out of date; null while the server is heard. */
  staleSince: number | null;
  frames: number;
};

export type Listener = {
  onFrame: (frame: Frame) => void;
  /** Frames up to `lostUpTo` are gone for good: read the state over REST, then call `resumeAfter` with its seq. */
  onGap: (resumeAfter: (seq: number) => void, lostUpTo: number) => void;
};

type Subscription = Listener & { topic: string; seq: number | null; waitingForRefetch: boolean };

/** What the connection needs of the browser; tests hand in their own. */
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

const DOUBT_MILLISECONDS = 20_000; // the server pings every 15 seconds; after a missed one nothing is called live
const SILENCE_MILLISECONDS = 45_000; // longer silence means a dead connection
const REFUSED_LOGIN = 4401;

export class StreamConnection {
  private readonly environment: Environment;
  private readonly subscriptions = new Set<Subscription>();
  private readonly watchers = new Set<() => void>();
  private socket: WebSocketLike | null = null;
  private isOpen = false;
  private failures = 0;
  private cancelRetry: (() => void) | null = null;
  private cancelSilence: (() => void) | null = null;
  private cancelDoubt: (() => void) | null = null;
  private lastHeard: number;
  private state: StreamState = { status: "idle", staleSince: null, frames: 0 };
  /** Called when the server refuses the session (close code 4401). */
  onUnauthenticated: () => void = () => {};

  constructor(environment: Environment) {
    this.environment = environment;
    this.lastHeard = environment.now();
  }

  /** Starts receiving `topic` after `seq` (null: from now on). The answer ends it. */
  subscribe(topic: string, seq: number | null, listener: Listener): () => void {
    const subscription: Subscription = { ...listener, topic, seq, waitingForRefetch: false };
    this.subscriptions.add(subscription);
    if (this.isOpen) this.ask(topic);
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

  private move(change: Partial<StreamState>): void {
    this.state = { ...this.state, ...change };
    for (const changed of this.watchers) changed();
  }

  private connect(): void {
    if (this.socket !== null) return;
    this.cancelRetry?.();
    this.cancelRetry = null;
    if (this.failures === 0) this.move({ status: "connecting" });
    const socket = this.environment.open();
    this.socket = socket;
    socket.onopen = () => {
      this.isOpen = true;
      this.failures = 0;
      this.heard();
      for (const topic of new Set([...this.subscriptions].map((entry) => entry.topic))) this.ask(topic);
      this.move({ status: "live", staleSince: null });
    };
    socket.onmessage = (event) => {
      this.heard();
      this.receive(JSON.parse(String(event.data)) as Frame);
    };
    socket.onclose = (event) => this.lost(event.code);
  }

  private disconnect(): void {
    this.cancelRetry?.();
    this.cancelSilence?.();
    this.cancelDoubt?.();
    const socket = this.socket;
    this.socket = null;
    this.isOpen = false;
    this.failures = 0;
    if (socket !== null) {
      socket.onclose = null;
      socket.onmessage = null;
      socket.onopen = null;
      socket.close();
    }
    this.move({ status: "idle", staleSince: null });
  }

  private lost(code: number): void {
    this.socket = null;
    this.isOpen = false;
    this.cancelSilence?.();
    this.cancelDoubt?.();
    if (code === REFUSED_LOGIN) this.onUnauthenticated();
    if (this.subscriptions.size === 0) return;
    this.failures += 1;
    this.move({ status: "reconnecting", staleSince: this.state.staleSince ?? this.lastHeard });
    const wait = Math.min(15_000, 500 * 2 ** (this.failures - 1)) * (0.75 + 0.5 * Math.random());
    this.cancelRetry = this.environment.after(wait, () => this.connect());
  }

  /** Every sign of life restarts the silence clock. */
  private heard(): void {
    this.lastHeard = this.environment.now();
    this.cancelSilence?.();
    this.cancelDoubt?.();
    if (this.state.status === "live" && this.state.staleSince !== null) this.move({ staleSince: null });
    this.cancelDoubt = this.environment.after(DOUBT_MILLISECONDS, () => {
      if (this.state.status === "live") this.move({ staleSince: this.lastHeard });
    });
    this.cancelSilence = this.environment.after(SILENCE_MILLISECONDS, () => {
      const socket = this.socket;
      if (socket === null) return;
      socket.onclose = null;
      socket.close();
      this.lost(1006);
    });
  }

  /** Asks from the oldest position that any listener of the topic needs; each drops what it has seen. */
  private ask(topic: string): void {
    const positions = [...this.subscriptions].filter((entry) => entry.topic === topic).map((entry) => entry.seq);
    const known = positions.filter((seq): seq is number => seq !== null);
    const message: Record<string, unknown> = { op: "subscribe", topic };
    if (known.length > 0) message["after_seq"] = Math.min(...known);
    this.socket?.send(JSON.stringify(message));
  }

  private receive(frame: Frame): void {
    if (frame.type === "ping") return;
    this.move({ frames: this.state.frames + 1 });
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
      // Frames that came during the refetch were dropped here: ask for them again.
      if (this.isOpen && this.subscriptions.has(subscription)) this.ask(subscription.topic);
    }, lostUpTo);
  }
}
