package transfer_test

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/transfer"
)

const benchSize = 512 << 20

// reportProcessorTime returns a function that reports the processor time of both sides since then, in seconds for each
// GB of the file. Unlike the rate it hardly depends on what else runs.
func reportProcessorTime(b *testing.B) func() {
	used := func() time.Duration {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	return func() { b.ReportMetric((used()-before).Seconds()/float64(b.N)/benchSize*1e9, "cpu-s/GB") }
}

// BenchmarkPush sends a file of which half compresses; bytes a second are bytes of the file.
func BenchmarkPush(b *testing.B) {
	c := serve(b, b.TempDir()).client(b)
	f := write(b, "disk.img", api.FileDisk, "raw", benchSize, map[int64]int{0: benchSize})
	b.SetBytes(benchSize)
	defer reportProcessorTime(b)()
	n := 0
	for b.Loop() {
		o := pushOptions(fmt.Sprint("v", n), f)
		o.Request.ID = fmt.Sprintf("11111111-2222-4333-8444-%012d", n)
		if n++; n > 1 {
			b.StopTimer() // the registry has the layer by now; time a push into an empty one
			c = serve(b, b.TempDir()).client(b)
			b.StartTimer()
		}
		if _, err := c.Push(b.Context(), o); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPull fetches the same file into an empty directory.
func BenchmarkPull(b *testing.B) {
	c := serve(b, b.TempDir()).client(b)
	f := write(b, "disk.img", api.FileDisk, "raw", benchSize, map[int64]int{0: benchSize})
	if _, err := c.Push(b.Context(), pushOptions("v1", f)); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(benchSize)
	defer reportProcessorTime(b)()
	for b.Loop() {
		o := transfer.PullOptions{Ref: transfer.VersionRef{ID: templateID}, Dir: b.TempDir()}
		if _, err := c.Pull(b.Context(), o); err != nil {
			b.Fatal(err)
		}
	}
}
