"""Plots: the position of values, and what is drawn if there are none."""

import re

import numpy as np
import pytest

from tapewire.page import Panel, Scale, figure
from tapewire.page.svg import SHADES


@pytest.fixture
def panel():
    return Panel(Scale(0, 10, 100, 200), Scale(0, 1, 50, 0))


def test_a_scale_maps_its_ends_to_its_pixels_and_can_be_logarithmic():
    assert Scale(2, 4, 100, 0)([2, 3, 4]).tolist() == [100, 50, 0]
    assert Scale(1, 100, 0, 10, log=True)([1, 10, 100]).tolist() == [0, 5, 10]


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-7, 3.5), (59_990.1, 60_010.3), (5, 5)])
def test_ticks_are_round_and_inside(low, high):
    ticks = Scale(low, high, 0, 100).ticks(5)
    assert all(low - 1e-9 <= tick <= high + 1e-9 for tick in ticks)
    assert len(ticks) <= 12


def test_steps_last_until_the_next_point_and_are_interrupted_by_nan(panel):
    panel.steps(np.array([0, 2, 4, 6]), np.array([0.0, 1.0, np.nan, 0.5]), "c1")
    [part] = panel.parts
    assert 'd="M100.0,50.0H120.0V0.0H140.0M160.0,25.0"' in part


def test_adjacent_cells_with_one_shade_are_one_rectangle(panel):
    panel.cells(np.array([0, 1, 2, 3]), np.array([0.0, 1.0]), np.array([[1.0, 1.0, 0.0]]), "c1")
    [part] = panel.parts
    assert part.count("M") == 1
    assert 'd="M100.0,50.0h20.0v-50.0h-20.0z"' in part


def test_a_heat_map_has_a_limited_number_of_shades_and_none_for_0(panel):
    x, y = np.arange(101.0), np.array([0.0, 1.0])
    panel.cells(x, y, np.linspace(0, 1, 100)[None, :], "c1")
    assert len(panel.parts) == SHADES
    panel.parts.clear()
    panel.cells(x, y, np.full((1, 100), np.nan), "c1")
    assert panel.parts == []


def test_a_span_shorter_than_a_pixel_is_drawn(panel):
    panel.span(5, 5.0001, "flaw")
    assert float(re.search(r'width="([\d.]+)"', panel.parts[0])[1]) >= 1


def test_text_is_escaped(panel):
    panel.text(0, 0, "<script>")
    assert "<script>" not in figure(10, 10, '"<script>', *panel.parts)
