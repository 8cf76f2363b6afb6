package agent

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/metric/metrictest"
)

// wantFigures compares some of the node's metrics.
func (w *world) wantFigures(want map[string]float64) {
	w.t.Helper()
	got := metrictest.Values(slices.Concat(w.agent.Families(), w.cache.Families()))
	for name, n := range want {
		if v, ok := got[name]; !ok || v != n {
			w.t.Errorf("%s is %v (%t), want %v", name, v, ok, n)
		}
	}
}

func TestMetricsOfANode(t *testing.T) {
	inWorld(t, boots(time.Second), func(w *world) {
		w.control.order(startOrder(withScript(api.Script{Text: []byte("exit 3"), Monitoring: true, OnFailure: 1})))
		w.until(api.PhaseScriptEnded)
		time.Sleep(6 * time.Second)
		w.wantFigures(map[string]float64{
			"buildyard_node_vms{running}": 1, "buildyard_node_instances": 1, "buildyard_node_cached_versions": 1,
			"buildyard_node_pulls_total{ok}": 1, "buildyard_node_pulls_total{failed}": 0,
			"buildyard_node_pulls_running":    0,
			"buildyard_node_starts_total{ok}": 1, "buildyard_node_starts_total{failed}": 0,
			"buildyard_node_scripts_total{ok}": 0, "buildyard_node_scripts_total{failed}": 1,
			"buildyard_node_scripts_total{timeout}": 0,
			"buildyard_node_polls_total{failed}":    0, "buildyard_node_reports_total{failed}": 0,
		})
		got := metrictest.Values(w.agent.Families())
		if got["buildyard_node_polls_total{ok}"] < 2 || got["buildyard_node_reports_total{ok}"] == 0 ||
			got["buildyard_node_last_poll_age_seconds"] > 6 {
			t.Errorf("%v", got)
		}
		if _, ok := got["buildyard_node_capacity_vms"]; ok {
			t.Error("a node that joined without a capacity says one")
		}
		w.control.order(terminate("1"))
		w.until(api.PhaseTerminated)
		time.Sleep(2 * time.Second)
		w.wantFigures(map[string]float64{"buildyard_node_vms{running}": 0, "buildyard_node_instances": 0})
	})
}

func TestMetricsOfFailures(t *testing.T) {
	inWorld(t, boots(0), func(w *world) {
		w.source.set(0, errors.New("the registry is away"))
		w.control.order(startOrder(nil))
		w.until(api.PhaseFailed)
		w.wantFigures(map[string]float64{
			"buildyard_node_pulls_total{ok}": 0, "buildyard_node_pulls_total{failed}": 1,
			"buildyard_node_starts_total{failed}": 0,
		})
	})
	inWorld(t, boots(0), func(w *world) {
		w.control.order(startOrder(withScript(api.Script{Text: []byte("sleep 100"), Monitoring: true, Timeout: 5})))
		w.until(api.PhaseScriptEnded)
		w.wantFigures(map[string]float64{
			"buildyard_node_scripts_total{timeout}": 1, "buildyard_node_scripts_total{failed}": 0,
		})
	})
}

// TestAbandonedPullIsNotAFailure: its instance was terminated in the meantime.
func TestAbandonedPullIsNotAFailure(t *testing.T) {
	inWorld(t, boots(0), func(w *world) {
		w.source.set(time.Minute, nil)
		w.control.order(startOrder(nil))
		w.until(api.PhasePulling)
		w.wantFigures(map[string]float64{"buildyard_node_pulls_running": 1})
		w.control.order(terminate("1"))
		w.until(api.PhaseTerminated)
		time.Sleep(time.Second)
		w.wantFigures(map[string]float64{
			"buildyard_node_pulls_total{ok}": 0, "buildyard_node_pulls_total{failed}": 0,
			"buildyard_node_pulls_running": 0,
		})
	})
}
