package s3store

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// TestStall: a connection that transfers nothing is an error, and one that transfers slowly is not.
func TestStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer server.Close()
		conn := stallLimitedConn{client}
		defer conn.Close()
		go func() {
			for range 5 {
				time.Sleep(stallLimit - time.Second)
				_, _ = server.Write([]byte("x")) // the test sees what is missing
			}
		}()
		got := make([]byte, 5)
		if _, err := io.ReadFull(conn, got); err != nil {
			t.Fatalf("a slow response: %q, %v", got, err)
		}
		if _, err := conn.Read(got); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read from a stalled server: %v", err)
		}
		if _, err := conn.Write(got); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("write to a stalled server: %v", err)
		}
	})
}
