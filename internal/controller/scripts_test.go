package controller

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/admission"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/etcd"
)

// withScript returns a request for instances with a script.
func withScript(count int, text string) StartRequest {
	return StartRequest{Count: count, Options: farm.StartOptions{Script: []byte(text), ScriptMonitoring: true}}
}

// wantScripts checks how many scripts are in the store.
func (c *cloud) wantScripts(want int) {
	c.t.Helper()
	synctest.Wait()
	if got := c.tables.Scripts.Len(); got != want {
		c.t.Errorf("%d scripts are stored, want %d", got, want)
	}
}

// scriptIn returns the text of the script in a start order.
func scriptIn(o api.Order) string {
	if o.Start == nil || o.Start.Script == nil {
		return ""
	}
	return string(o.Start.Script.Text)
}

// TestScriptsAreApart: a script is not in the records of its instances, comes with every start
// order, after a restart and from another replica too, and is deleted with the last instance that
// has it.
func TestScriptsAreApart(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		const text = "\xff echo $SECRET"
		ids := c.mustStart(withScript(3, text))
		c.wantScripts(1)
		if list := c.stored(record.KindInstance, "SECRET"); len(list) > 0 {
			t.Errorf("instances with the script in their records: %q", list)
		}
		a := c.join("a", 1)
		if got := scriptIn(a.take(api.OrderStart)); got != text {
			t.Errorf("the script in the order is %q", got)
		}
		c.restart()
		a.boot = "another"
		o := a.take(api.OrderStart)
		second := c.replica()
		defer second.stop()
		inst, _, _ := second.tables.Instances.Get(o.InstanceID)
		other, err := second.script(inst)
		if got := []string{scriptIn(o), string(other)}; err != nil ||
			!slices.Equal(got, []string{text, text}) {
			t.Errorf("the script after a restart and of another replica is %q, %v", got, err)
		}
		for _, replica := range []*cloud{c, second} {
			for _, s := range replica.tables.Scripts.All() {
				if s.Size != len(text) || s.Text != nil {
					t.Errorf("the table has a script of %d bytes and its text %q", s.Size, s.Text)
				}
			}
		}
		for _, id := range ids {
			if id == o.InstanceID {
				continue
			}
			if err := c.Instances.Terminate(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
			c.wantState(id, farm.InstanceRemoved)
		}
		c.wantScripts(1)
		if err := c.Instances.Terminate(t.Context(), o.InstanceID); err != nil {
			t.Fatal(err)
		}
		a.say(a.take(api.OrderTerminate), api.PhaseTerminated)
		c.wantState(o.InstanceID, farm.InstanceRemoved)
		c.wantScripts(0)
	})
}

// stored returns the keys of a kind with a text in their values, as it is or in base64.
func (c *cloud) stored(kind store.Kind, text string) (keys []string) {
	c.t.Helper()
	encoded, err := json.Marshal([]byte(text))
	if err != nil {
		c.t.Fatal(err)
	}
	_, err = c.backend.List(c.t.Context(), store.DefaultPrefix+"/v1/"+string(kind)+"/", func(kvs []store.KV) error {
		for _, kv := range kvs {
			if bytes.Contains(kv.Value, []byte(text)) || bytes.Contains(kv.Value, bytes.Trim(encoded, `"=`)) {
				keys = append(keys, kv.Key)
			}
		}
		return nil
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return keys
}

// TestScriptsOfManyParts: instances that need several transactions have their script in each of
// them, and all are deleted.
func TestScriptsOfManyParts(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		ids := c.mustStart(withScript(3*record.TxnChanges, "true"))
		c.wantScripts(1)
		for _, id := range ids {
			if err := c.Instances.Terminate(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(5 * time.Second) // they end at the same time
		c.wantState(ids[len(ids)-1], farm.InstanceRemoved)
		c.wantScripts(0)
	})
}

// TestLooseScriptsGo: the next leader deletes a script that a crash has left without instances, and
// keeps one that is in use.
func TestLooseScriptsGo(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		ids := c.mustStart(withScript(1, "true"))
		loose := store.Put(c.tables.Scripts, record.NewID(), &record.Script{Size: 1, Text: []byte("x")}, store.IfAbsent)
		if err := c.store.Commit(t.Context(), loose); err != nil {
			t.Fatal(err)
		}
		c.restart()
		c.wantScripts(2)
		time.Sleep(2 * time.Second)
		c.wantScripts(1)
		inst, _, _ := c.tables.Instances.Get(ids[0])
		if text, err := c.script(inst); err != nil || string(text) != "true" {
			t.Errorf("the script in use is %q, %v", text, err)
		}
	})
}

// script returns the startup script of an instance.
func (c *cloud) script(inst *farm.Instance) ([]byte, error) {
	return c.payloads.Script(c.t.Context(), inst)
}

// TestScriptInTheRecord: instances of older releases have their script in the record.
func TestScriptInTheRecord(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		ids := c.mustStart(StartRequest{})
		err := c.Instances.Modify(t.Context(), c.store, ids[0], func(i *farm.Instance) (*farm.Instance, error) {
			n := i.Clone()
			n.Options.Script = []byte("old")
			return n, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		c.restart()
		if got := scriptIn(c.join("a", 1).take(api.OrderStart)); got != "old" {
			t.Errorf("the script in the order is %q", got)
		}
	})
}

// TestLostScript: an order whose script cannot be read is not sent without it.
func TestLostScript(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		ids := c.mustStart(withScript(1, "true"))
		inst, _, _ := c.tables.Instances.Get(ids[0])
		if err := c.store.Commit(t.Context(),
			store.Delete(c.tables.Scripts, inst.Options.ScriptID, store.Any)); err != nil {
			t.Fatal(err)
		}
		a := c.join("a", 1)
		if orders := a.next(); len(orders) > 0 {
			t.Errorf("orders without a script: %+v", orders)
		}
	})
}

// TestTransactionsWithScripts: the largest script fits every transaction of a start, placed or not.
func TestTransactionsWithScripts(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		c.join("a", 1)
		large := strings.Repeat("x", 256<<10)
		ids := c.mustStart(withScript(MaxCount, large))
		if slices.Contains(ids, "") || c.tables.Instances.Len() != MaxCount {
			t.Errorf("%d instances", c.tables.Instances.Len())
		}
		c.wantScripts(1)
	})
}

// BenchmarkRestartWithScripts measures how much memory 1,700 pending instances with scripts of 200
// KB use after a restart, and how long the restart takes.
func BenchmarkRestartWithScripts(b *testing.B) {
	const instances, size = 1700, 200_000
	backend, err := etcd.StartEmbedded(b.Context(), etcd.EmbeddedOptions{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = backend.Close() }()
	open := func() (*store.Store, *Controller) {
		tables := record.NewTables(nil)
		st, err := store.Open(b.Context(), backend, store.Options{Tables: tables.All()})
		if err != nil {
			b.Fatal(err)
		}
		c, err := New(b.Context(), st, tables, Options{
			Registry: &shelf{}, RegistryAddress: "http://registry", Limits: admission.Limits{ScriptsSize: 1 << 30},
		})
		if err != nil {
			b.Fatal(err)
		}
		return st, c
	}
	st, c := open()
	for i := range instances {
		req := withScript(1, fmt.Sprintf("%0*d", size, i))
		req.TemplateID, req.Options.Priority = templateID, farm.DefaultPriority
		if _, err := c.Start(b.Context(), req); err != nil {
			b.Fatal(err)
		}
	}
	if err := st.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		before := heapInUse()
		st, c = open()
		b.ReportMetric(float64(heapInUse()-before)/(1<<20), "MiB-live")
		if n := c.tables.Instances.Len(); n != instances {
			b.Fatalf("%d instances", n)
		}
		if err := st.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// heapInUse returns the bytes in use on the heap.
func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
