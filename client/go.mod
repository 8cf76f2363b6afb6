module github.com/buildyard/buildyard/client

go 1.26.0

require (
	github.com/buildyard/buildyard/api v0.1.0
	github.com/coder/websocket v1.8.15
)

replace github.com/buildyard/buildyard/api => ../api
