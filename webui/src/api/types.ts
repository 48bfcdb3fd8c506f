// Until the control plane serves its schema, the shapes below follow the contract.

export type Page<T> = { data: T[]; next_cursor: string | null; has_more: boolean };

export type Named = { id: string; name: string };

export type Me = { user: { id: string; username: string }; team: Named; project: Named; role: string; scopes: string[] };

export type Token = { id: string; name: string; prefix: string; scopes: string[]; created_at: string; expires_at: string | null; last_used_at: string | null };
export type CreatedToken = Token & { token: string };

export type Upload = { id: string; filename: string; bytes: number; sha256: string };

export type Mapping = {
  prompt_column: string;
  answer_column: string;
  completion_column?: string | null;
  split_column?: string | null;
  default_split?: string;
  template?: string;
  system?: string;
};

export type Dataset = { id: string; name: string; description: string; created_at: string; versions: DatasetVersion[]; latest: DatasetVersion | null };
export type DatasetVersion = {
  id: string; dataset: Named; number: number; ref: string; sha256: string; rows: number; splits: Record<string, number>;
  mapping: Mapping; bytes: number; created_at: string;
};
export type Rendered = { messages: { role: string; content: string }[]; answer: string; completion: string | null; split: string };
export type Preview = {
  columns: { name: string; type: string; missing: number }[];
  rows: Record<string, unknown>[];
  rendered: Rendered[];
  errors: { pointer: string; code: string; message: string }[];
};

export type BaseModel = {
  id: string; name: string; family: string; parameters: number; sha256: string; bytes: number; config: Record<string, unknown>; source: string; created_at: string;
};

export type Spec = Record<string, unknown>;
export type Preset = { name: string; title: string; description: string; spec: Spec };
export type Validation = { valid: boolean; errors: { pointer: string; code: string; message: string }[]; resolved: Spec | null };

export type Progress = { phase: string; done: number; total: number; message: string };

export type Run = {
  id: string; name: string; kind: string; status: string; reason: string; reason_message: string; advice: string; fault: string;
  conditions: string[]; waiting_why: string; queue_position: number | null; attempt_number: number;
  train_step: number | null; total_train_steps: number | null; policy_version: number | null; progress: Progress | null;
  reward_mean: number | null; staleness_mean: number | null; spec: Spec; dataset: { id: string; ref: string } | null;
  model: Record<string, unknown> | null; created_by: string | Named | null; created_at: string; started_at: string | null; ended_at: string | null;
  notes: string; latest_checkpoint: { id: string; step: number } | null; summary: Record<string, unknown>; metrics_seq: number;
};

export type RunEvent = { id: string; at: string; kind: string; message: string; attempt_number?: number | null; from_status?: string; to_status?: string; data?: unknown };
export type Attempt = { id: string; number: number; status: string; reason: string; started_at: string | null; ended_at: string | null };
export type Job = {
  id: string; name: string; kind: string; attempt_number: number; state: string; node: Named; slots: unknown[];
  incarnation: number; pid: number | null; exit_code: number | null; reason: string; message: string; started_at: string | null; ended_at: string | null;
};

export type Series = { name: string; unit: string; axis: "step" | "time"; source: string; attempt: number; x: number[]; value: number[]; at: number[] };
export type Histogram = { x: number; attempt: number; source: string; counts: Record<string, number> };
export type MetricDescription = { name: string; unit: string; help: string };

export type Trajectory = {
  step: number; group_id: string; prompt: string; answer: string; completion: string; reward: number; policy_versions: number[];
  version_texts?: string[]; finish_reason: string; id?: string; attempt?: number;
};

export type LogFile = { job: string; name: string; attempt: number; incarnation: number; bytes: number };
export type LogPart = { job: string; incarnation: number; offset: number; next_offset: number; text: string; end: boolean };

export type Checkpoint = {
  id: string; run: Named; step: number; sha256: string; tar_sha256: string | null; bytes: number; state: string; final: boolean;
  metrics: Record<string, number> | null; parent: string | null; created_at: string;
};

export type Slot = { id: string; node: Named; device: string; model: string; state: string; held_by: { run_id: string; run_name: string; job: string } | null };
export type Node = { id: string; name: string; status: string; last_seen_at: string | null; slots: number };
export type QueueEntry = { run_id: string; name: string; priority: number; slots_needed: number; why: string; position: number; submitted_at: string };
export type Pool = { slots: Slot[]; nodes: Node[]; queue: QueueEntry[]; quota: { team: string; limit_slots: number | null; used_slots: number } };
