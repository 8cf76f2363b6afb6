package controllerrest

import (
	"context"
	"errors"
	"net/http"
	"unicode/utf8"

	"github.com/coder/websocket"

	"github.com/buildyard/buildyard/internal/controller/console"
	"github.com/buildyard/buildyard/internal/rest"
)

// openConsole opens the console of an instance as a WebSocket. Without the upgrade it reports whether the console
// can be opened.
func (s *server) openConsole(w http.ResponseWriter, r *http.Request) error {
	params, err := rest.ReadParams(w, r)
	if err != nil {
		return err
	}
	id := params.Required("id")
	if err := params.Err(); err != nil {
		return err
	}
	upgrades, err := rest.IsWebSocketUpgrade(r)
	if err != nil {
		return err
	}
	if !upgrades {
		screen, err := s.controller.Consoles.Of(r.Context(), id)
		if err != nil {
			return err
		}
		w.Header().Set("Cache-Control", "no-store")
		return rest.WriteResponse(w, r, screen)
	}
	if err := rest.CheckSameSite(r); err != nil {
		return err
	}
	release, err := s.consoles.Acquire(r)
	if err != nil {
		return err
	}
	defer release()
	opened, err := s.controller.Consoles.Open(r.Context(), id)
	if err != nil {
		return err
	}
	defer opened.Close()
	viewer := acceptWebSocket(w, r)
	if viewer == nil {
		return nil
	}
	rest.AuditOpened(r, opened.Instance())
	opened.Serve(viewer) //nolint:contextcheck // it uses the context that it was opened with
	return nil
}

// nodeConsole accepts the console connection that a node was asked to open. Without an upgrade to a WebSocket
// it only confirms the node's credential.
func (s *server) nodeConsole(w http.ResponseWriter, r *http.Request) error {
	r.Body = http.MaxBytesReader(w, r.Body, 4<<10) // the caller is not authenticated yet
	params, err := rest.ReadParams(w, r)
	if err != nil {
		return err
	}
	id, session := params.Required("node_id"), params.String("session")
	if err := params.Err(); err != nil {
		return err
	}
	node, err := s.controller.Link.Authenticate(id, nodeCredential(r))
	if err != nil {
		return err
	}
	upgrades, err := rest.IsWebSocketUpgrade(r)
	if err != nil {
		return err
	}
	if !upgrades {
		return rest.WriteResponse(w, r, nil)
	}
	asked, err := s.controller.Consoles.Take(node.ID, session)
	if err != nil {
		return err
	}
	if line := acceptWebSocket(w, r); line != nil {
		asked.Join(line)
	}
	return nil
}

// maxMessage bounds a message of a console, in bytes: a longer one is an attack.
const maxMessage = 1 << 20

// acceptWebSocket accepts a WebSocket. It returns nil after a failure, which was answered.
func acceptWebSocket(w http.ResponseWriter, r *http.Request) *consoleConn {
	// The guard has already checked the origin of the request, with more knowledge than the library has. The
	// content was compressed as its viewer asks.
	conn, err := websocket.Accept(w, r,
		&websocket.AcceptOptions{InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return nil
	}
	conn.SetReadLimit(maxMessage)
	return &consoleConn{conn}
}

// consoleConn implements the controller's console connection over a WebSocket.
type consoleConn struct{ conn *websocket.Conn }

var _ console.Conn = (*consoleConn)(nil)

// Read implements console.Conn.
func (l *consoleConn) Read(ctx context.Context) ([]byte, error) {
	kind, message, err := l.conn.Read(ctx)
	if closed, ok := errors.AsType[websocket.CloseError](err); ok {
		return nil, console.ClosedError{Why: closed.Reason}
	}
	if err == nil && kind != websocket.MessageBinary {
		_ = l.conn.Close(websocket.StatusUnsupportedData, "A screen is sent in binary messages")
		return nil, console.ClosedError{}
	}
	return message, err
}

// Write implements console.Conn.
func (l *consoleConn) Write(ctx context.Context, message []byte) error {
	return l.conn.Write(ctx, websocket.MessageBinary, message)
}

// Ping implements console.Conn.
func (l *consoleConn) Ping(ctx context.Context) error { return l.conn.Ping(ctx) }

// maxCloseReason is the longest reason that fits the frame, in bytes.
const maxCloseReason = 123

// End implements console.Conn.
func (l *consoleConn) End(why string) {
	why = why[:min(len(why), maxCloseReason)]
	for !utf8.ValidString(why) {
		why = why[:len(why)-1] // it was cut within a character
	}
	_ = l.conn.Close(websocket.StatusNormalClosure, why) // an earlier close by either end does not matter
}
