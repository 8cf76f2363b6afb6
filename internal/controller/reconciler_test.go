package controller

import (
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// TestKeeperForgets: the entry of a removed record leaves the delay queue.
func TestKeeperForgets(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		k := newReconciler(c.Controller, record.NewTerm(c.store, c.now(), nil, func() {}))
		inst := &farm.Instance{ID: "gone", State: farm.Started, NodeID: "node", Expires: c.now().Add(time.Hour)}
		for want, e := range []store.Event{{Old: inst}, {New: inst}} {
			e.Kind, e.ID = record.KindInstance, inst.ID
			k.observe([]store.Event{{Kind: record.KindInstance, ID: inst.ID, New: inst}, e})
			if k.loop.Len() != want {
				t.Errorf("%d records on the agenda, want %d", k.loop.Len(), want)
			}
		}
	})
}
