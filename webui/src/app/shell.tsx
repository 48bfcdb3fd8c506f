import { ActionIcon, Kbd, Menu, Tooltip, useMantineColorScheme } from "@mantine/core";
import { IconBrightness, IconCheck, IconChevronUp, IconCoffee, IconDeviceDesktop, IconHelp, IconLogout, IconMoon, IconPlus, IconSearch, IconSun, IconUser } from "@tabler/icons-react";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useLayoutEffect, useState } from "react";
import { Link, Navigate, NavLink, Outlet, useLocation, useNavigate, useNavigation, useNavigationType } from "react-router";

import { useSwitchProject } from "../account/use-switch-project.ts";
import { forgetCsrfToken, remove } from "../api/http.ts";
import { Problem } from "../api/problem.ts";
import * as queries from "../api/queries.ts";
import type { Me } from "../api/schema.d.ts";
import { ProblemNotice, Waiting } from "../common/notices.tsx";
import { readOnlyReason } from "../common/permission.ts";
import { useDialog } from "../common/use-dialog.ts";
import { useRunsTopic } from "../runs/runs-topic.ts";
import { ConnectionBadge } from "./connection-badge.tsx";
import { pageOf, START, visiblePages } from "./pages.ts";
import { commandKey } from "./shortcut-keys.ts";
import { Shortcuts, type GlobalDialog } from "./shortcuts.tsx";
import classes from "./shell.module.css";

/** The layout of every page that requires a login. */
export function Shell() {
  const { data: me, error, refetch } = useQuery(queries.me);
  const location = useLocation();
  const navigation = useNavigation();
  const dialog = useDialog<GlobalDialog>();
  useScrollToTop(location.pathname);
  if (error instanceof Problem && (error.status === 401 || error.status === 403)) {
    return <Navigate to={`/login?next=${encodeURIComponent(location.pathname + location.search)}`} replace />;
  }
  if (error !== null) return <main className={classes.alone}><ProblemNotice error={error} retry={() => void refetch()} /></main>;
  if (me === undefined) return <main className={classes.alone}><Waiting label="Connecting" /></main>;
  const page = pageOf(location.pathname);
  return (
    <div className={classes.frame}>
      <RunsSubscription />
      <a className={classes.skip} href="#content">Skip to content</a>
      <nav className={classes.side} aria-label="Pages">
        <NavLink to="/" className={classes.brand} aria-label="Oolong, go to the home page">
          <span className={classes.mark}><IconCoffee size={18} stroke={1.9} aria-hidden /></span> Oolong
        </NavLink>
        <button type="button" className={classes.search} onClick={() => dialog.show("palette")} aria-label={`Search ${commandKey(navigator.platform)} K`} title="Search everything" aria-haspopup="dialog">
          <IconSearch size={15} stroke={2} aria-hidden /> <span>Search</span> <Kbd size="xs">{commandKey(navigator.platform)} K</Kbd>
        </button>
        {readOnlyReason(me.role) === null && (
          <NavLink to={START.to} className={classes.start}>
            <IconPlus size={15} stroke={2.2} aria-hidden /> {START.label}
          </NavLink>
        )}
        {visiblePages(me).filter(({ inMenu }) => inMenu !== true).map(({ to, label, icon: PageIcon }) => (
          <NavLink key={to} to={to} className={classes.link} data-active={to === page?.to && location.pathname !== START.to}>
            <PageIcon size={16} stroke={1.8} aria-hidden /> {label}
          </NavLink>
        ))}
        <div className={classes.foot}>
          <a href={`/docs/${page?.help ?? "guide"}`} target="_blank" rel="noreferrer" className={classes.link}>
            <IconHelp size={16} stroke={1.8} aria-hidden /> Help
          </a>
          <ConnectionBadge />
          <div className={classes.who}>
            <AccountMenu me={me} />
            <SchemeSwitch />
          </div>
        </div>
      </nav>
      <main id="content" className={classes.content} data-busy={navigation.state === "loading"} tabIndex={-1}>
        <Outlet />
      </main>
      <Shortcuts {...dialog} />
    </div>
  );
}

/** A page that a link opens starts at its top. A tab or filter of the same page keeps the position, and so does Back. */
function useScrollToTop(pathname: string): void {
  const arrivedBy = useNavigationType();
  useLayoutEffect(() => {
    if (arrivedBy !== "POP") window.scrollTo(0, 0);
  }, [pathname]);
}

/** Subscribes only after login, because the stream requires a session. */
function RunsSubscription() {
  useRunsTopic();
  return null;
}

/** The user's projects to switch between, and the way out. */
function AccountMenu({ me }: { me: Me }) {
  const name = me.user.username;
  const navigate = useNavigate();
  const client = useQueryClient();
  const [opened, setOpened] = useState(false);
  const projects = useQuery({ ...queries.projects, enabled: opened }).data?.data ?? [];
  const { choose, isPending } = useSwitchProject();
  const logOut = useMutation({
    mutationFn: () => remove("/api/v1/session"),
    onSettled: () => {
      forgetCsrfToken();
      client.clear();
      void navigate("/login");
    },
  });
  return (
    <Menu position="top-start" width={230} opened={opened} onChange={setOpened}>
      <Menu.Target>
        <button type="button" className={classes.account}>
          <span className={classes.initial} aria-hidden>{name.slice(0, 1).toUpperCase()}</span>
          <span className={classes.names}>{name}<small>{me.team.name} / {me.project.name}</small></span>
          <IconChevronUp size={13} aria-hidden />
        </button>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Label>Project</Menu.Label>
        {projects.map((project) => {
          const isCurrent = project.id === me.project.id;
          return (
            <Menu.Item key={project.id} disabled={isPending} aria-current={isCurrent} leftSection={isCurrent ? <IconCheck size={14} /> : <span className={classes.unchecked} />} onClick={() => { if (!isCurrent) choose(project.id); }}>
              {project.team.name} / {project.name}
            </Menu.Item>
          );
        })}
        <Menu.Divider />
        <Menu.Item component={Link} to="/account" leftSection={<IconUser size={14} />}>Account and tokens</Menu.Item>
        <Menu.Item leftSection={<IconLogout size={14} />} onClick={() => logOut.mutate()}>Log out</Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}

const SCHEMES = { auto: { icon: IconDeviceDesktop, label: "System" }, light: { icon: IconSun, label: "Light" }, dark: { icon: IconMoon, label: "Dark" } } as const;

function SchemeSwitch() {
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  const names = ["auto", "light", "dark"] as const;
  return (
    <Menu position="top-end" width={140}>
      <Menu.Target>
        <Tooltip label={`Color scheme: ${SCHEMES[colorScheme].label.toLowerCase()}`}>
          <ActionIcon variant="subtle" color="gray" aria-label="Color scheme"><IconBrightness size={16} /></ActionIcon>
        </Tooltip>
      </Menu.Target>
      <Menu.Dropdown>
        {names.map((name) => {
          const { icon: SchemeIcon, label } = SCHEMES[name];
          return <Menu.Item key={name} leftSection={<SchemeIcon size={14} />} onClick={() => setColorScheme(name)}>{label}{name === colorScheme ? " ✓" : ""}</Menu.Item>;
        })}
      </Menu.Dropdown>
    </Menu>
  );
}
