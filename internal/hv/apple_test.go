package hv

import (
	"bytes"
	"encoding/base64"
	"testing"
)

// The golden list is the "ecid" of a configuration that tart 2.32 wrote, with a made-up number (public
// test data).
func TestMachineID(t *testing.T) {
	const golden = "YnBsaXN0MDDRAQJURUNJRBQAAAAAAAAAAMD/7gEjRWeJCAsQAAAAAAAAAQEAAAAAAAAAAwAAAAAAAAAAAAAAAAAAACE="
	if got := base64.StdEncoding.EncodeToString(machineID(0xc0ffee0123456789)); got != golden {
		t.Errorf("got  %s\nwant %s", got, golden)
	}
	one, two := NewMachineID("one"), NewMachineID("two")
	if bytes.Equal(one, two) || !bytes.Equal(one, NewMachineID("one")) {
		t.Errorf("VM one has %x and %x, VM two %x", one, NewMachineID("one"), two)
	}
}
