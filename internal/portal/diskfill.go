package portal

import (
	"fmt"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/portal/format"
)

// diskFill is how much of an instance's disks is on its node.
type diskFill struct{ api.DiskFill }

// newDiskFill returns the display of a fill; nil for none.
func newDiskFill(f *api.DiskFill) *diskFill {
	if f == nil {
		return nil
	}
	return &diskFill{*f}
}

// Text returns it in a few words.
func (f diskFill) Text() string {
	if f.Waits() {
		return fmt.Sprintf("Disk %s local, the guest waits for the registry", f.percent())
	}
	return fmt.Sprintf("Disk %s local", f.percent())
}

// Waits reports whether the guest has waited for its registry for long.
func (f diskFill) Waits() bool { return f.Waiting >= api.LongDiskWait }

// WaitTime returns for how long the guest has waited.
func (f diskFill) WaitTime() string { return format.Duration(time.Duration(f.Waiting) * time.Second) }

// Amount returns the bytes that are on the node, of all, and how fast they come.
func (f diskFill) Amount() string {
	return fmt.Sprintf("%s of %s, %s/s", bytesize.Format(f.Bytes), bytesize.Format(f.Total), bytesize.Format(f.Rate))
}

func (f diskFill) percent() string { return fmt.Sprintf("%.0f %%", 100*f.Fraction) }
