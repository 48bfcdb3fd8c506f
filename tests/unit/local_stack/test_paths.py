"""Paths of a clone by user and environment."""

from pathlib import Path

from local_stack.paths import resolve_paths


def _paths(root: Path, *, uid: int, **environ: str):
    return resolve_paths(root, environ=environ, uid=uid, user_home=Path("/home/alice"))


def test_root_keeps_data_where_the_service_user_can_reach_it(tmp_path):
    paths = _paths(tmp_path, uid=0)
    assert paths.home == Path("/var/lib/oolong")
    assert paths.data == Path("/var/lib/oolong/clones") / paths.clone_id


def test_normal_user_keeps_data_in_the_checkout_and_environments_in_the_cache(tmp_path):
    paths = _paths(tmp_path, uid=1000)
    assert paths.data == tmp_path / "var" / "data"
    assert paths.environments == Path("/home/alice/.cache/oolong/envs")


def test_oolong_home_moves_environments_and_data(tmp_path):
    for uid in (0, 1000):
        paths = _paths(tmp_path, uid=uid, OOLONG_HOME="/srv/oolong")
        assert paths.environments == Path("/srv/oolong/envs")
        assert paths.data.is_relative_to("/srv/oolong/clones")


def test_clones_share_only_environments(tmp_path):
    one, two = _paths(tmp_path / "one", uid=0), _paths(tmp_path / "two", uid=0)
    assert one.environments == two.environments
    assert one.data != two.data
    assert one.var != two.var
