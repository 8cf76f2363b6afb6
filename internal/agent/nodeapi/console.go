package nodeapi

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"unicode/utf8"

	"github.com/coder/websocket"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// ConsoleConn is a WebSocket to the controller as a stream of bytes. The caller ends it.
type ConsoleConn struct {
	net.Conn
	socket *websocket.Conn
}

// maxReasonBytes is the longest reason that fits the frame, in bytes.
const maxReasonBytes = 123

// End sends the controller the reason why the connection ends, and closes it.
func (l *ConsoleConn) End(why string) {
	why = why[:min(len(why), maxReasonBytes)]
	for !utf8.ValidString(why) {
		why = why[:len(why)-1] // it was cut within a character
	}
	_ = l.socket.Close(websocket.StatusNormalClosure, why) // it may have ended already
}

// OpenConsole opens the connection on which the controller has requested a screen.
func (c *Client) OpenConsole(ctx context.Context, nodeID, session string) (*ConsoleConn, error) {
	dialling, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	q := url.Values{"node_id": {nodeID}, "session": {session}}
	address := c.base.String() + api.PathConsole + "?" + q.Encode()
	socket, resp, err := websocket.Dial(dialling, address, &websocket.DialOptions{ //nolint:bodyclose // the library has read it
		HTTPClient: c.http, HTTPHeader: http.Header{"Authorization": {"Bearer " + c.credential}},
		CompressionMode: websocket.CompressionDisabled,
	})
	if err == nil {
		return &ConsoleConn{Conn: websocket.NetConn(context.WithoutCancel(ctx), socket,
			websocket.MessageBinary), socket: socket}, nil
	}
	if resp != nil && resp.StatusCode != http.StatusSwitchingProtocols {
		var e api.Envelope[json.RawMessage]
		if resp.Body != nil && json.NewDecoder(resp.Body).Decode(&e) == nil && e.Message != "" {
			return nil, farm.Errorf(errorCode(resp.StatusCode), "%.*s", maxMessage, e.Message)
		}
		return nil, farm.Unavailable(err,
			"The controller answered a WebSocket request with %s; check that a proxy in front of it allows WebSockets",
			resp.Status)
	}
	return nil, unreachable(err, c.base)
}
