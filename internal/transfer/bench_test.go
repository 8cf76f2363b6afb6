package transfer_test

import (
	"fmt"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/transfer"
)

const benchSize = 512 << 20

// BenchmarkPush sends a file of which half compresses; bytes a second are bytes of the file.
func BenchmarkPush(b *testing.B) {
	c := serve(b, b.TempDir()).client(b)
	f := write(b, "disk.img", api.FileDisk, "raw", benchSize, map[int64]int{0: benchSize})
	b.SetBytes(benchSize)
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
	for b.Loop() {
		o := transfer.PullOptions{Ref: transfer.VersionRef{ID: templateID}, Dir: b.TempDir()}
		if _, err := c.Pull(b.Context(), o); err != nil {
			b.Fatal(err)
		}
	}
}
