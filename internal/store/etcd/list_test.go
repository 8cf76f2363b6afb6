package etcd

import (
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// TestNextPage: pages grow while values are small, and shrink where they are large.
func TestNextPage(t *testing.T) {
	page := func(keys, size int) []*mvccpb.KeyValue {
		list := make([]*mvccpb.KeyValue, keys)
		for i := range list {
			list[i] = &mvccpb.KeyValue{Value: make([]byte, size)}
		}
		return list
	}
	for _, tt := range []struct{ keys, size, want int }{
		{64, 0, 256},
		{64, 100, 256},
		{4096, 100, 5000},
		{5000, 0, 5000},
		{64, 1 << 20, 8},
		{8, 1 << 10, 32},
		{64, 256 << 10, 31},
		{8, 2 << 20, 8},
	} {
		if got := nextPageKeys(page(tt.keys, tt.size)); got != tt.want {
			t.Errorf("after %d keys of %d bytes: %d, want %d", tt.keys, tt.size, got, tt.want)
		}
	}
}
