package client

import (
	"context"
	"net"
	"net/http"

	"github.com/coder/websocket"

	"github.com/buildyard/buildyard/api"
)

const pathConsole = pathVM + "/console"

// ConsoleOf reports whether the console of an instance can be opened; the error contains the reason.
func (c *Controller) ConsoleOf(ctx context.Context, id string) (api.Console, error) {
	return fetch[api.Console](ctx, c.service, get(pathConsole, byID(id)))
}

// OpenConsole connects to the console of a running instance, which speaks RFB (VNC) to its viewer. The
// connection ends with the instance, when either side closes it, and when the caller loses the permission. It
// begins when the controller has asked the node of the instance to open the console; it ends within seconds if
// the node does not answer.
func (c *Controller) OpenConsole(ctx context.Context, id string) (net.Conn, error) {
	ask := get(pathConsole, byID(id))
	opening, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	target := c.base.JoinPath()
	target.Path, target.RawPath, target.RawQuery = c.base.Path+ask.path, "", ask.query.Encode()
	req, err := http.NewRequestWithContext(opening, ask.method, target.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", c.agent)
	if err := c.Authorize(req); err != nil {
		return nil, c.unauthorized(ask, err)
	}
	socket, resp, err := websocket.Dial(opening, target.String(), &websocket.DialOptions{ //nolint:bodyclose // the library has read it
		HTTPClient: c.http, HTTPHeader: req.Header, CompressionMode: websocket.CompressionDisabled,
	})
	switch {
	case err == nil:
		return websocket.NetConn(context.WithoutCancel(ctx), socket, websocket.MessageBinary), nil
	case resp == nil || resp.Body == nil:
		return nil, c.unreachable(ask, err)
	}
	resp.Request = req
	if said := c.decode(ctx, resp, nil); said != nil {
		return nil, said
	}
	return nil, c.unreachable(ask, err) // it did not upgrade
}
