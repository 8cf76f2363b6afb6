package peers

import (
	"bytes"
	"testing"

	"github.com/buildyard/buildyard/internal/transfer"
)

func FuzzParseRead(f *testing.F) {
	f.Add([]byte(`{"file":"disk.img","runs":[[0,4096],[8192,1048576]]}`))
	f.Add([]byte(`{"file":"../x","runs":[[0,1]]}`))
	f.Add([]byte(`{"file":"a","runs":[[9223372036854775807,9223372036854775807]]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		file, runs, size, err := parseRead(bytes.NewReader(b))
		if err != nil {
			return
		}
		var sum int64
		for _, r := range runs {
			if r.Off < 0 || r.Len < 1 || r.Off+r.Len < r.Off {
				t.Fatalf("run %+v", r)
			}
			sum += r.Len
		}
		if file == "" || len(runs) == 0 || sum != size || size > transfer.MaxPeerRead {
			t.Fatalf("%q, %d runs, %d bytes", file, len(runs), size)
		}
	})
}
