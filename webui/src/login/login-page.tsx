import "@mantine/core/styles/PasswordInput.css";
import { Button, PasswordInput, TextInput } from "@mantine/core";
import { IconCoffee } from "@tabler/icons-react";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useNavigate, useSearchParams } from "react-router";

import { forgetCsrfToken, post } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import { ProblemNotice } from "../common/notices.tsx";
import classes from "./login-page.module.css";

/** The path to open after login. Only paths on this site are allowed. */
function safeRedirect(next: string | null): string {
  return next !== null && next.startsWith("/") && !next.startsWith("//") ? next : "/";
}

export function LoginPage() {
  const [username, setUsername] = useState("");
  const [password, setPassword] = useState("");
  const [search] = useSearchParams();
  const navigate = useNavigate();
  const client = useQueryClient();
  const logIn = useMutation({
    mutationFn: () => post("/api/v1/session", { body: { username, password } }),
    onSuccess: (me) => {
      forgetCsrfToken();
      client.setQueryData(queries.me.queryKey, me);
      void navigate(safeRedirect(search.get("next")), { replace: true });
    },
  });
  return (
    <main className={classes.page}>
      <form
        className={classes.form}
        onSubmit={(event) => {
          event.preventDefault();
          logIn.mutate();
        }}
      >
        <div className={classes.brand}><span><IconCoffee size={24} stroke={1.8} aria-hidden /></span>Oolong</div>
        <p className={classes.lead}>Asynchronous reinforcement learning of language models on a shared GPU pool.</p>
        <ProblemNotice error={logIn.error} />
        <TextInput label="Username" name="username" autoComplete="username" size="sm" autoFocus required value={username} onChange={(event) => setUsername(event.currentTarget.value)} />
        <PasswordInput label="Password" name="password" autoComplete="current-password" required value={password} onChange={(event) => setPassword(event.currentTarget.value)} />
        <Button type="submit" size="sm" fullWidth loading={logIn.isPending} mt={6}>Log in</Button>
        <p className={classes.hint}>
          No password yet? On the server, <code className="mono">python manage.py login-link</code> prints a one-time login link.
        </p>
      </form>
    </main>
  );
}
