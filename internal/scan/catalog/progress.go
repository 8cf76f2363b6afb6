package catalog

import (
	"sync"
	"sync/atomic"
	"time"
)

// progress reports periodically how far a scan is.
type progress struct {
	report       func(files, packages int)
	fileCount    atomic.Int64
	packageCount atomic.Int64 // before merging equal ones
}

// start begins the reports, until the returned function is called.
func (p *progress) start() (end func()) {
	if p.report == nil {
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
				p.report(int(p.fileCount.Load()), int(p.packageCount.Load()))
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
