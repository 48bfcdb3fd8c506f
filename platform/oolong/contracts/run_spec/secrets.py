"""Which of the project's secrets a run's jobs are given, as variables of their environment."""

from __future__ import annotations

import re
from typing import Annotated, Self

from pydantic import Field, model_validator

from oolong.contracts.lifecycle import JobKind
from oolong.contracts.run_spec.section import Section, refuse

MOST_SECRETS = 20

# What the node sets itself, or what decides which code a process loads, which machine it talks to, or how its ranks
# find each other. A name here is refused in any spelling of its case.
_RESERVED = re.compile(
    r"PATH|HOME|PWD|SHELL|USER|LOGNAME|LANG|LANGUAGE|TERM|TZ|TMPDIR|TEMP|TMP|IFS|ENV|BASH_ENV|BASH_FUNC.*|PS4|"
    r"RANK|WORLD_SIZE|LOCAL_.*|GROUP_.*|ROLE_.*|MASTER_ADDR|MASTER_PORT|HOSTNAME|GCONV_PATH|GLIBC_.*|"
    r"OPENSSL_CONF|SSL_CERT_.*|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|(?:.*_)?PROXY|"
    r"HF_HUB_.*|HF_HOME|HF_ENDPOINT|TRANSFORMERS_.*|"
    r"(?:PYTHON|LC_|LD_|DYLD_|MALLOC_|OMP_|KMP_|MKL_|OPENBLAS_|CUDA|NVIDIA_|NCCL_|GLOO_|TORCH|PYTORCH_|TRITON_|SGLANG_|"
    r"SGL_|OTEL_|OOLONG_).*",
    re.IGNORECASE,
)


class SecretSection(Section):
    """One secret of the project (`oolong secret set`), and the jobs that are given its value. No other process of the
    run has it: not the other jobs, not the engines, nothing in a sandbox. The spec holds its name alone."""

    name: Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]{0,63}$")] = Field(description="name of the secret")
    jobs: Annotated[list[JobKind], Field(min_length=1, max_length=len(JobKind))] = Field(
        description="kinds of jobs, of those that an admin allowed for it: controller, reward, rollout, trainer"
    )
    variable: str | None = Field(None, description="variable of their environment; default: the name")

    @property
    def variable_name(self) -> str:
        return self.name if self.variable is None else self.variable

    @model_validator(mode="after")
    def _the_variable_may_be_set(self) -> Self:
        variable, field = self.variable_name, "name" if self.variable is None else "variable"
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", variable):
            raise refuse(
                "variable_name",
                f"variable={variable!r} is no name of an environment variable: letters, digits and _, no digit "
                "first, 64 at most",
                field,
            )
        if _RESERVED.fullmatch(variable):
            raise refuse(
                "reserved_variable",
                f"{variable} is a variable that decides how a job runs, so no secret is given as it; name another one "
                "with variable",
                field,
            )
        if len(set(self.jobs)) < len(self.jobs):
            raise refuse("doubled", f"jobs={[str(job) for job in self.jobs]} names a job twice", "jobs")
        return self
