package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"strings"

	"github.com/buildyard/buildyard/internal/hv/sim"
	"github.com/buildyard/buildyard/test/fakes/fakeguest"
)

// passwordWords are words of a screen's password. Only its first 8 bytes count in the protocol.
var passwordWords = []string{"fix", "umbrella", "noble", "acid", "voyage", "ribbon", "cactus", "matter"}

// serveScreen listens for VNC viewers and prints where, after a while.
func (m *machine) serveScreen(ctx context.Context) {
	if m.knobs.IsSet(m.name, knobNoVNC) {
		return
	}
	fakeguest.Pause(ctx, m.knobs.Seconds(m.name, knobVNCDelay, 0))
	l, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		fmt.Println("VNC:", err)
		return
	}
	var choice [4]byte
	_, _ = rand.Read(choice[:])
	words := make([]string, len(choice))
	for i, b := range choice {
		words[i] = passwordWords[int(b)%len(passwordWords)]
	}
	password := strings.Join(words, "-")
	fmt.Printf("VNC server is running at vnc://:%s@%s\n", password, l.Addr())
	fakeguest.Accept(ctx, l, func(_ context.Context, c net.Conn) {
		defer c.Close()
		sim.ServeScreen(c, m.name, password)
	})
}
