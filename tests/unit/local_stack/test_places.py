"""Where things lie, by user and environment."""

from pathlib import Path

from local_stack.places import places_of


def _places(root: Path, *, uid: int, **environ: str):
    return places_of(root, environ=environ, uid=uid, user_home=Path("/home/alice"))


def test_root_keeps_data_where_the_dropped_user_can_reach_it(tmp_path):
    places = _places(tmp_path, uid=0)
    assert places.home == Path("/var/lib/oolong")
    assert places.data == Path("/var/lib/oolong/clones") / places.clone_id


def test_a_normal_user_keeps_data_in_the_checkout_and_environments_in_the_cache(tmp_path):
    places = _places(tmp_path, uid=1000)
    assert places.data == tmp_path / "var" / "data"
    assert places.environments == Path("/home/alice/.cache/oolong/envs")


def test_oolong_home_moves_environments_and_data(tmp_path):
    for uid in (0, 1000):
        places = _places(tmp_path, uid=uid, OOLONG_HOME="/srv/oolong")
        assert places.environments == Path("/srv/oolong/envs")
        assert places.data.is_relative_to("/srv/oolong/clones")


def test_two_clones_share_environments_and_nothing_else(tmp_path):
    one, two = _places(tmp_path / "one", uid=0), _places(tmp_path / "two", uid=0)
    assert one.environments == two.environments
    assert one.data != two.data
    assert one.var != two.var
