package main

import (
	"bytes"
	"compress/flate"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/test/bench/row"
)

// TestRows: each row belongs to one cloud.
func TestRows(t *testing.T) {
	names := row.Names(rows(3))
	if measured := slices.Concat(startRows, manyRows, poolRows); !slices.Equal(slices.Sorted(slices.Values(names)),
		slices.Sorted(slices.Values(measured))) {
		t.Errorf("rows %v, measured are %v", names, measured)
	}
	for _, r := range rows(3) {
		if r.Target == 0 || r.Need == 0 || r.How == "" || r.What == "" || r.Unit == "" {
			t.Errorf("%+v", r)
		}
	}
}

func TestRound(t *testing.T) {
	r := round{
		Nodes: 8, Rate: 125_000_000, Seconds: 20, Sent: 1100 << 20, Stored: 1 << 30, Processor: 36, Busy: 38, Cores: 2,
	}
	const want = "8 of 8 nodes at 1000 Mbit/s: 20.0 s; sent 1.074 copies; 36.0 s of processor time, so at least " +
		"18.0 s on 2 cores, which were busy for 95 %"
	if got := r.String(); got != want {
		t.Errorf("%s", got)
	}
	const why = "20.0 s, one node alone 9.0 s; bounds: 8.6 s by the links, 18.0 s by 36.0 s of processor time " +
		"on 2 cores; all else on the machine used 2.0 s"
	if got := explain(round{Seconds: 9}, r); got != why {
		t.Errorf("%s", got)
	}
	if got := middle([]round{{Seconds: 3}, {Seconds: 1}, {Seconds: 2}}); got.Seconds != 2 {
		t.Errorf("the round in the middle took %.0f s", got.Seconds)
	}
}

// TestNoise: what nodes take does not compress.
func TestNoise(t *testing.T) {
	path := filepath.Join(t.TempDir(), "noise")
	const size = 2*mebibyte + 5
	if err := writeNoise(path, size); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	w, _ := flate.NewWriter(&packed, flate.BestSpeed)
	_, _ = w.Write(raw)
	_ = w.Close()
	if len(raw) != size || packed.Len() < size {
		t.Errorf("%d bytes, %d of them compressed", len(raw), packed.Len())
	}
}

// TestCalls: the script of a claim calls, and other calls change nothing.
func TestCalls(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not installed")
	}
	calls, err := answerCalls(t.Context(), "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	defer calls.close()
	before := time.Now()
	for _, token := range []string{"other", "token"} {
		cmd := exec.CommandContext(t.Context(), bash)
		cmd.Stdin = strings.NewReader(callScript(calls.address(), token))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	at, err := calls.await(t.Context(), "token")
	if err != nil || at.Before(before) || at.After(time.Now()) {
		t.Errorf("called at %v, %v", at, err)
	}
}

func TestTakeovers(t *testing.T) {
	const log = `{"time":"2026-11-29T15:00:00.25Z","msg":"a start took over the VM of a standby","instance_id":"a"}
{"time":"2026-11-29T15:00:01Z","msg":"startup script ended","instance_id":"a"}
not JSON
{"time":"2026-11-29T15:00:02Z","level":"INFO","msg":"a start took over the VM of a standby","instance_id":"b"}
`
	at := takeovers(log)
	if len(at) != 2 || at["b"].Sub(at["a"]) != 1750*time.Millisecond {
		t.Errorf("%v", at)
	}
}
