package catalog

import (
	"sync"
	"sync/atomic"
	"time"
)

// progress reports periodically how far a scan is.
type progress struct {
	tell     func(files, packages int)
	files    atomic.Int64
	packages atomic.Int64 // before merging equal ones
}

// start begins the reports, until the returned function is called.
func (p *progress) start() (end func()) {
	if p.tell == nil {
		return func() {}
	}
	done := make(chan struct{})
	var teller sync.WaitGroup
	teller.Go(func() {
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.tell(int(p.files.Load()), int(p.packages.Load()))
			case <-done:
				return
			}
		}
	})
	return func() {
		close(done)
		teller.Wait()
	}
}
