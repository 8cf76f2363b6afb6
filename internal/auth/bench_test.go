package auth

import (
	"encoding/base64"
	"fmt"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// perOp reports the processor time of the process per iteration: on a busy machine the elapsed time
// is meaningless.
func perOp(b *testing.B) (stop func()) {
	b.Helper()
	used := func() time.Duration {
		var u syscall.Rusage
		must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	b.ReportAllocs()
	begin := used()
	return func() { b.ReportMetric(float64((used()-begin).Nanoseconds())/1000/float64(b.N), "cpu-us/op") }
}

// BenchmarkBearer is what a session adds to a request, its permission included, among
// 10,000 sessions of 100 keys. The reach is 10 us.
func BenchmarkBearer(b *testing.B) {
	w := newWorld(b)
	g := group(b, Grants{}, plus.Service, "g2", "start_vm")
	for i := range 100 {
		w.add(b, fmt.Sprint("ci-", i), "g1", "g2")
	}
	values := make([]string, 10_000)
	for i := range values {
		key, _ := w.keys.GetUnexpired(fmt.Sprint("ci-", i%100))
		values[i] = "Bearer " + bearer(b, w.sessions.Issue(key))
	}
	a, rules := complete(b, w), NewRules(plus, g)
	r := httptest.NewRequestWithContext(b.Context(), "GET", "/", nil)
	header := make([]string, 1)
	r.Header["Authorization"] = header
	defer perOp(b)()
	n := 0
	for b.Loop() {
		header[0] = values[n%len(values)]
		n++
		who, err := a.Identify(r)
		if err != nil || !rules.Allows(who, "start_vm") {
			b.Fatal(err)
		}
	}
}

// BenchmarkHandshake is a hand and a shake. The reach is 0.5 ms, and 200 a second.
func BenchmarkHandshake(b *testing.B) {
	for bits, public := range map[int]string{
		2048: publicText(b, &pair2048().PublicKey), 4096: publicText(b, &pair4096().PublicKey),
	} {
		b.Run(fmt.Sprint(bits), func(b *testing.B) {
			w := newWorld(b)
			must(b, w.create(b, NewAPIKey{ID: "ci", TTL: 3600, PublicKey: public}))
			key, _ := w.keys.GetUnexpired("ci")
			defer perOp(b)()
			for b.Loop() {
				if _, err := w.tap.Hand("ci"); err != nil {
					b.Fatal(err)
				}
				// The client's part, which costs far more, is left out: the secret is made again.
				if _, err := w.tap.Shake(b.Context(),
					api.ShakeRequest{ID: "ci", Secret: w.tap.newSecret(key, time.Now())},
					"192.0.2.1"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkAllows is one permission of a caller with n groups, of which the last has it.
func BenchmarkAllows(b *testing.B) {
	for _, n := range []int{1, 10, 100} {
		who := Identity{Name: "ci", Method: ByKey}
		g := Grants{}
		for i := range n {
			who.Groups = append(who.Groups, fmt.Sprint("group-", i))
		}
		g = group(b, g, plus.Service, who.Groups[n-1], "start_vm")
		g = onNode(b, g, who.Groups[n-1], "n1", "list")
		managed := plus
		managed.Resources = true
		rules := NewRules(managed, g)
		b.Run(fmt.Sprint("permission/", n), func(b *testing.B) {
			defer perOp(b)()
			for b.Loop() {
				if !rules.Allows(who, "start_vm") {
					b.Fatal("denied")
				}
			}
		})
		b.Run(fmt.Sprint("resource/", n), func(b *testing.B) {
			defer perOp(b)()
			for b.Loop() {
				if !rules.AllowsOn(who, farm.ResourceNode, "n1", "list") {
					b.Fatal("denied")
				}
			}
		})
	}
}

// BenchmarkBasic is the root token.
func BenchmarkBasic(b *testing.B) {
	r, err := NewRootToken("a root token of usual length")
	must(b, err)
	value := base64.StdEncoding.EncodeToString([]byte("root:a root token of usual length"))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Verify(value); err != nil {
			b.Fatal(err)
		}
	}
}
