import "@mantine/core/styles/PasswordInput.css";
import { Button, PasswordInput, TextInput } from "@mantine/core";
import { IconCoffee } from "@tabler/icons-react";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useLocation, useNavigate } from "react-router";

import { forgetCsrfToken, post, put } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import { ProblemNotice } from "../common/notices.tsx";
import classes from "./login-page.module.css";

/** The page of an invitation link. Its secret is in the URL fragment, so that no server logs it. */
export function InvitePage() {
  const secret = useLocation().hash.slice(1);
  const me = useQuery(queries.me);
  const invitation = useQuery({
    queryKey: ["invitation", secret],
    queryFn: () => post("/api/v1/invitations/lookup", { body: { secret } }),
    retry: false,
  });
  return (
    <main className={classes.page}>
      <div className={classes.form}>
        <div className={classes.brand}><span><IconCoffee size={24} stroke={1.8} aria-hidden /></span>Oolong</div>
        <ProblemNotice error={invitation.error} />
        {invitation.data && (
          <>
            <p className={classes.lead}>
              {invitation.data.invited_by} invites you to {invitation.data.level === "team" ? `all projects of ${invitation.data.team.name}` : `${invitation.data.team.name} / ${invitation.data.project.name}`} as {invitation.data.role}.
            </p>
            {me.data
              ? <Join secret={secret} username={me.data.user.username} />
              : !me.isPending && <SignUp secret={secret} />}
          </>
        )}
      </div>
    </main>
  );
}

function Join({ secret, username }: { secret: string; username: string }) {
  const navigate = useNavigate();
  const client = useQueryClient();
  const join = useMutation({
    mutationFn: async () => {
      const joined = await post("/api/v1/invitations/accept", { body: { secret } });
      await put("/api/v1/session/project", { body: { project: joined.project.id } });
    },
    onSuccess: () => {
      client.clear();
      void navigate("/", { replace: true });
    },
  });
  return (
    <>
      <ProblemNotice error={join.error} />
      <Button size="sm" fullWidth loading={join.isPending} onClick={() => join.mutate()}>Join as {username}</Button>
    </>
  );
}

function SignUp({ secret }: { secret: string }) {
  const [username, setUsername] = useState("");
  const [password, setPassword] = useState("");
  const navigate = useNavigate();
  const client = useQueryClient();
  const signUp = useMutation({
    mutationFn: async () => {
      await post("/api/v1/invitations/accept", { body: { secret, username, password } });
      return post("/api/v1/session", { body: { username, password } });
    },
    onSuccess: (me) => {
      forgetCsrfToken();
      client.clear();
      client.setQueryData(queries.me.queryKey, me);
      void navigate("/", { replace: true });
    },
  });
  return (
    <form
      style={{ display: "contents" }}
      onSubmit={(event) => {
        event.preventDefault();
        signUp.mutate();
      }}
    >
      <ProblemNotice error={signUp.error} />
      <TextInput label="Username" name="username" autoComplete="username" size="sm" autoFocus required maxLength={120} value={username} onChange={(event) => setUsername(event.currentTarget.value)} />
      <PasswordInput label="Password" name="password" autoComplete="new-password" description="At least ten characters" required minLength={10} value={password} onChange={(event) => setPassword(event.currentTarget.value)} />
      <Button type="submit" size="sm" fullWidth loading={signUp.isPending} mt={6}>Create account and join</Button>
      <p className={classes.hint}>
        Already have an account? <Link to={`/login?next=${encodeURIComponent(`/invite#${secret}`)}`}>Log in</Link> to join with it.
      </p>
    </form>
  );
}
