package agent

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/hv"
)

const growDiskTimeout = 5 * time.Minute

// growGuestDisk lets a guest use the disk that its order enlarged. It may run twice: a guest that has grown
// has nothing left to grow.
func (a *Agent) growGuestDisk(ctx context.Context, in *instance) error {
	m := in.order.Start.Machine
	if m == nil || m.DiskBytes == 0 || m.KeepFileSys {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, growDiskTimeout+startTimeoutMargin)
	defer cancel()
	r, err := a.opts.Driver.Exec(limited, in.id, hv.GrowFileSystemCommand(growDiskTimeout))
	if err == nil && r.Code == 0 && !r.TimedOut {
		return nil
	}
	said := strings.TrimSpace(lastText(r.Stderr, maxMessageBytes))
	switch {
	case err != nil:
		said = err.Error()
	case r.TimedOut:
		said = fmt.Sprintf("it took longer than %s", growDiskTimeout)
	}
	return fmt.Errorf(
		"the VM has a disk of %s, but the guest does not use all of it: %s Set skip_container_resize to start the "+
			"VM anyway",
		bytesize.Format(m.DiskBytes), asSentence(said))
}

// asSentence returns a text as one sentence.
func asSentence(text string) string {
	if text == "" || strings.HasSuffix(text, ".") {
		return text
	}
	return text + "."
}
