package controller

import (
	"testing"
	"testing/synctest"

	"github.com/buildyard/buildyard/internal/farm"
)

// TestPoolOfGroup: a start claims no standby on a node that has left the group, and the pool replaces it.
func TestPoolOfGroup(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		group := c.mustGroup("ios", nil)
		a, b := c.poolNode("one", 3), c.poolNode("two", 3)
		if err := c.Groups.AddNode(t.Context(), a.id, []string{group.ID}); err != nil {
			t.Fatal(err)
		}
		p := c.pool(1, func(p *farm.Pool) { p.GroupID = group.ID })
		standby := a.bootStandbys(1)[0].InstanceID
		if err := c.Groups.AddNode(t.Context(), b.id, []string{group.ID}); err != nil {
			t.Fatal(err)
		}
		if err := c.Groups.RemoveNode(t.Context(), a.id, []string{group.ID}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		ids := c.mustStart(StartRequest{GroupID: group.ID})
		if ids[0] == standby {
			t.Fatal("a start in the group claimed a standby outside it")
		}
		c.wantOn(ids[0], b)
		a.bootStandbys(0)
		b.bootStandbys(2) // the start, and the standby in place of the one that has ended
		if v := c.poolView(p); v.Stats.Replaced != 1 || v.Stats.Misses != 1 || v.Ready != 1 {
			t.Errorf("pool %+v", v)
		}
	})
}
