package controller

import (
	"testing"
	"testing/synctest"
	"time"

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

// TestPoolOfNodeWithoutLicense: standbys on a node that takes no starts are not ready, and after some time others boot
// in their place.
func TestPoolOfNodeWithoutLicense(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.poolNode("one", 2)
		p := c.pool(1)
		a.bootStandbys(1)
		b := c.poolNode("two", 2)
		info := *a.info
		info.License, info.Expires = "enterprise", "31-dec-1999"
		a.info = &info
		for range 3 {
			a.contact()
			b.bootStandbys(0)
		}
		if v := c.poolView(p); v.Ready != 0 || v.Problem == "" {
			t.Errorf("pool %+v", v)
		}
		for range 4 {
			time.Sleep(10 * time.Second)
			a.contact()
			b.early = append(b.early, b.contact()...)
		}
		b.bootStandbys(1)
		if v := c.poolView(p); v.Ready != 1 || len(v.Standbys) != 2 {
			t.Errorf("pool %+v", v)
		}
	})
}
