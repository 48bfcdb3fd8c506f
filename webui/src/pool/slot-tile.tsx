import { Tooltip } from "@mantine/core";
import { Link } from "react-router";

import type { Reservation, Slot } from "../api/schema.d.ts";
import { bytes, moment } from "../common/format.ts";
import { StatusBadge } from "../common/status.tsx";
import { whoseText } from "./calendar.ts";
import classes from "./pool-page.module.css";
import { othersText, readingsText } from "./slot-readings.ts";

/** A slot: who holds it, how busy it is, and what else is to know about it. */
export function SlotTile({ slot, reservation }: { slot: Slot; reservation?: Reservation }) {
  const holder = slot.held_by;
  const others = othersText(slot.occupied_by);
  const readings = slot.state === "held" || slot.device === "cuda" ? readingsText(slot) : "";
  const about = [slot.name, slot.model, slot.memory_bytes > 0 ? bytes(slot.memory_bytes) : "", slot.reason].filter((part) => part !== "").join(", ");
  const keptFor = reservation === undefined ? "" : `${reservation.state === "active" ? "Reserved" : "Soon reserved"} for ${whoseText({ kind: "reservation", of: reservation })}`;
  const label = [
    `${about}${holder === null ? "" : `: held by ${holder.job} of ${holder.run_name}`}`,
    keptFor === "" ? "" : `${keptFor} until ${moment(reservation?.ends_at)}`,
    others === "" ? "" : `Used by ${others}, which is no job of Oolong${holder === null ? "; nothing starts here until it ends" : ""}`,
  ].filter((part) => part !== "").join(". ");
  const content = (
    <>
      <span className={classes.device}>{slot.name}<StatusBadge status={slot.state} /></span>
      <span className={classes.holder}>{holder !== null ? holder.run_name : others !== "" ? `Used by ${slot.occupied_by[0]?.user || "others"}` : slot.model}</span>
      <span className={classes.job}>{holder === null ? keptFor || slot.reason || " " : holder.job}</span>
      {holder !== null && keptFor !== "" && <span className={classes.job}>{keptFor}</span>}
      {holder !== null && others !== "" && <span className={classes.others}>also used by {slot.occupied_by[0]?.user || "others"}</span>}
      {readings !== "" && (
        <span className={`${classes.readings} tabular`}>
          {slot.utilization !== null && <i className={classes.meter} aria-hidden><i style={{ width: `${100 * slot.utilization}%` }} /></i>}
          {readings}
        </span>
      )}
    </>
  );
  return (
    <Tooltip multiline maw={360} label={label}>
      {holder === null || holder.run_id === ""
        ? <div className={classes.tile} data-state={slot.state}>{content}</div>
        : <Link to={`/runs/${holder.run_id}`} className={classes.tile} data-state={slot.state}>{content}</Link>}
    </Tooltip>
  );
}
