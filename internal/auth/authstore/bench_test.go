package authstore

import (
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/auth/authtest"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/mem"
)

// cpu is the processor time that this process has used: on a busy machine the elapsed time is
// meaningless.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// onEachBackend measures with each backend.
func onEachBackend(b *testing.B, bench func(b *testing.B, c *cluster)) {
	b.Run("mem", func(b *testing.B) { bench(b, newCluster(mem.New())) })
	b.Run("etcd", func(b *testing.B) {
		backend, err := oneEtcd()
		must(b, err)
		bench(b, newCluster(backend))
	})
}

// BenchmarkHandshake is a hand and a shake, of one caller and of many at a time, without what
// the client does. The store and its backend are in this process and counted. The reach is
// 0.5 ms, and 200 a second for one key.
func BenchmarkHandshake(b *testing.B) {
	for _, callers := range []int{1, 32} {
		b.Run(fmt.Sprint("callers=", callers), func(b *testing.B) {
			onEachBackend(b, func(b *testing.B, c *cluster) {
				r := c.open(b)
				r.add(b, "ci")
				secrets := make(chan string, b.N)
				for range b.N {
					secrets <- r.hand(b, "ci")
				}
				close(secrets)
				begin := cpu(b)
				b.ResetTimer()
				var wg sync.WaitGroup
				for range callers {
					wg.Go(func() {
						for secret := range secrets {
							if _, err := r.tap.Hand("ci"); err != nil {
								b.Error(err)
							}
							if _, err := r.shake(b, "ci", secret); err != nil {
								b.Error(err)
							}
						}
					})
				}
				wg.Wait()
				b.StopTimer()
				b.ReportMetric(float64((cpu(b)-begin).Microseconds())/float64(b.N), "cpu-us/op")
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "shakes/s")
			})
		})
	}
}

// manyKeys is a replica with as many keys as there may be.
func manyKeys(b *testing.B) *replica {
	b.Helper()
	r := newCluster(mem.New()).open(b)
	fill(b, r, func(i int) store.Change {
		id := fmt.Sprint("key-", i)
		return store.Put(r.Stores.keys.table, id, newCachedRecord(authtest.Key(id)), store.Any)
	}, auth.MaxKeys)
	return r
}

// BenchmarkGet is the look-up of a key among 10,000.
func BenchmarkGet(b *testing.B) {
	r := manyKeys(b)
	ids := make([]string, auth.MaxKeys)
	for i := range ids {
		ids[i] = fmt.Sprint("key-", i)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i = (i + 7919) % len(ids)
		if _, ok := r.Keys().Get(ids[i]); !ok {
			b.Fatal(ids[i])
		}
	}
}

// BenchmarkList is the list of 10,000 keys.
func BenchmarkList(b *testing.B) {
	r := manyKeys(b)
	b.ReportAllocs()
	for b.Loop() {
		if len(r.Keys().List()) != auth.MaxKeys {
			b.Fatal()
		}
	}
}

// BenchmarkUse is one mark among n.
func BenchmarkUse(b *testing.B) {
	for _, n := range []int{1000, 100_000} {
		b.Run(fmt.Sprint("marks=", n), func(b *testing.B) {
			r := newCluster(mem.New()).open(b)
			until := soon()
			before := live()
			fill(b, r, func(i int) store.Change {
				id, err := nonceID(auth.Nonce{byte(i * 7919), byte(i >> 8), byte(i >> 16), 1},
					until.Add(time.Duration(i%300)*time.Second))
				must(b, err)
				return store.Put(r.nonces.table, id, &struct{}{}, store.Any)
			}, n)
			each := float64(live()-before) / float64(n)
			begin, i := cpu(b), 0
			for b.Loop() {
				i++
				if first, err := r.Nonces().Use(b.Context(), auth.Nonce{byte(i), byte(i >> 8), byte(i >> 16), 2},
					until); !first || err != nil {
					b.Fatal(first, err)
				}
			}
			b.ReportMetric(float64((cpu(b)-begin).Microseconds())/float64(b.N), "cpu-us/op")
			b.ReportMetric(each, "B/mark") // the backend's own in this process counted
		})
	}
}

// live is the memory in use.
func live() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkChange is one change of a group among 100,000 rights of others, with the authorizer that
// follows it.
func BenchmarkChange(b *testing.B) {
	r := newCluster(mem.New()).open(b)
	g := r.Grants(registry)
	for i := range 10 {
		must(b, g.Change(b.Context(), setResources(fmt.Sprint(i), auth.MaxGroupResources-1)))
	}
	auth.NewAuthorizer(auth.Policy{
		Service: registry, Tier: farm.TierEnterprisePlus, Authorization: true, Resources: true,
	},
		g)
	i := 0
	for b.Loop() {
		i++
		list := []farm.Permission{"index", "pull_vm"}[:1+i%2]
		must(b, g.Change(b.Context(), setGroup("small", list...)))
	}
}

// fill commits n records.
func fill(b *testing.B, r *replica, change func(i int) store.Change, n int) {
	b.Helper()
	most := r.st.Limits().MaxOps
	for at := 0; at < n; at += most {
		var changes []store.Change
		for i := at; i < min(n, at+most); i++ {
			changes = append(changes, change(i))
		}
		must(b, r.st.Commit(b.Context(), changes...))
	}
}
