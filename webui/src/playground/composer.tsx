import "@mantine/core/styles/NumberInput.css";
import { Button, NumberInput, Textarea, TextInput } from "@mantine/core";
import { IconPlayerStop, IconSend } from "@tabler/icons-react";
import { useState } from "react";

import { DEFAULT_SAMPLING, type Question, type Sampling } from "./conversation.ts";
import classes from "./playground.module.css";

type Props = { waitsFor: string | null; busy: boolean; scores: boolean; onSend: (question: Question) => void; onStop: () => void };

/** The message and how the reply is sampled. Enter sends, Shift and Enter begins a new line. */
export function Composer({ waitsFor, busy, scores, onSend, onStop }: Props) {
  const [text, setText] = useState("");
  const [answer, setAnswer] = useState("");
  const [system, setSystem] = useState("");
  const [sampling, setSampling] = useState<Sampling>(DEFAULT_SAMPLING);
  const canSend = waitsFor === null && !busy && text.trim() !== "";
  const send = () => {
    if (!canSend) return;
    onSend({ text: text.trim(), answer: answer.trim(), system, sampling });
    setText("");
  };
  const set = (change: Partial<Sampling>) => setSampling((old) => ({ ...old, ...change }));
  return (
    <form className={classes.composer} onSubmit={(event) => { event.preventDefault(); send(); }} data-testid="composer">
      <Textarea
        aria-label="Message" placeholder={waitsFor ?? "Message"} classNames={{ input: classes.message }} rows={2} value={text} onChange={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => { if (event.key === "Enter" && !event.shiftKey && !event.nativeEvent.isComposing) { event.preventDefault(); send(); } }}
      />
      <div className={classes.controls}>
        {scores && <TextInput className={classes.answer} label="Expected answer" placeholder="none" title="What the reward compares the reply with" value={answer} onChange={(event) => setAnswer(event.currentTarget.value)} />}
        <NumberInput label="Temperature" min={0} max={2} step={0.1} w={100} value={sampling.temperature} onChange={(temperature) => set({ temperature })} />
        <NumberInput label="Top p" min={0} max={1} step={0.05} w={90} value={sampling.topP} onChange={(topP) => set({ topP })} />
        <NumberInput label="Max tokens" min={1} step={64} allowDecimal={false} w={100} value={sampling.maxTokens} onChange={(maxTokens) => set({ maxTokens })} />
        <NumberInput label="Seed" placeholder="random" min={0} allowDecimal={false} w={90} value={sampling.seed} onChange={(seed) => set({ seed })} />
        <TextInput className={classes.system} label="System message" placeholder="none" value={system} onChange={(event) => setSystem(event.currentTarget.value)} />
        {busy
          ? <Button variant="default" leftSection={<IconPlayerStop size={14} />} onClick={onStop}>Stop the reply</Button>
          : <Button type="submit" leftSection={<IconSend size={14} />} disabled={!canSend}>Send</Button>}
      </div>
    </form>
  );
}
