package netns

import "testing"

// devices is a text of /proc/net/dev.
const devices = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:    9968     126    0    0    0     0          0         0     9968     126    0    0    0     0       0          0
to-hub: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16
   hub:12345678   23456    0    0    0     0          0         0 90071992547 34567    0    0    0     0       0          0
  veth: 1 2 3
  many: 1 2 3 4 5 6 7 8 99999999999999999999 10 11 12 13 14 15 16
`

func TestSentBytes(t *testing.T) {
	for name, want := range map[string]int64{"hub": 90071992547, "lo": 9968, "to-hub": 9} {
		if got, err := sentBytes(devices, name); got != want || err != nil {
			t.Errorf("%s: %d, %v, want %d", name, got, err, want)
		}
	}
	for _, name := range []string{"eth0", "veth", "many", "face |bytes"} {
		if got, err := sentBytes(devices, name); err == nil {
			t.Errorf("%s: %d", name, got)
		}
	}
}
