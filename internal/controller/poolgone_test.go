package controller

import (
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// TestPoolOfDeletedTemplate: the standbys of a template that was deleted end, the pool says why, and can be changed.
func TestPoolOfDeletedTemplate(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.poolNode("one", 4)
		p := c.pool(2)
		a.bootStandbys(2)
		c.shelf.setDown(true)
		time.Sleep(resolveTime)
		a.bootStandbys(0)
		if v := c.poolView(p); v.Ready != 2 {
			t.Errorf("while the registry does not answer: %+v", v)
		}
		c.shelf.setDown(false)
		c.shelf.mu.Lock()
		c.shelf.gone = true
		c.shelf.mu.Unlock()
		time.Sleep(resolveTime)
		a.bootStandbys(0)
		if v := c.poolView(p); len(v.Standbys) != 0 || v.Problem == "" {
			t.Errorf("pool %+v", v)
		}
		if err := c.Pools.Update(t.Context(), p.ID, func(p *farm.Pool) { p.MinIdle = 0 }); err != nil {
			t.Error(err)
		}
		if v := c.poolView(p); v.Wanted != 0 || v.Problem == "" {
			t.Errorf("pool %+v", v)
		}
	})
}
