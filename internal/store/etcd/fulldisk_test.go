package etcd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/buildyard/buildyard/internal/store"
)

// writeToFullDisk writes until it is killed, whatever the free space, and starts again when the
// store requests it. Each line on stdout has the outcome of a commit.
func writeToFullDisk(dir string, unlimited bool) error {
	ctx := context.Background()
	b, err := StartEmbedded(ctx, EmbeddedOptions{Dir: dir, noDiskLimits: unlimited})
	if err != nil {
		return err
	}
	table := store.NewTable[blob]("c")
	s, err := store.Open(ctx, b, store.Options{Tables: []store.AnyTable{table}, Replica: "embedded"})
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, "open")
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for w := range 4 {
		wg.Go(func() {
			id := fmt.Sprint(w)
			n := 0
			if last, _, ok := table.Get(id); ok {
				n = last.N
			}
			for {
				select {
				case <-stop:
					return
				default:
				}
				n++
				err := s.Commit(ctx, store.Put(table, id, &blob{N: n, Body: body(4 << 10)}, store.Any))
				switch {
				case err == nil:
					fmt.Fprintf(os.Stdout, "ok %s %d\n", id, n)
				case errors.Is(err, store.ErrUnavailable):
					fmt.Fprintf(os.Stdout, "refused: %s (%d records to be read)\n", s.BlockedReason(), table.Len())
					time.Sleep(20 * time.Millisecond)
				default:
					fmt.Fprintf(os.Stdout, "unknown: %v\n", err)
				}
			}
		})
	}
	<-b.RestartNeeded()
	close(stop)
	wg.Wait()
	fmt.Fprintln(os.Stdout, "restart")
	if err := errors.Join(s.Close(), b.Close()); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return syscall.Exec(self, os.Args, os.Environ())
}
