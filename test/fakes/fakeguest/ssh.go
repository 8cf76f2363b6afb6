package fakeguest

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"

	"golang.org/x/crypto/ssh"
)

var errLogin = errors.New("permission denied")

// serveSSH serves one SSH connection: commands only, by password or keyboard-interactive.
func (g *Guest) serveSSH(ctx context.Context, c net.Conn) {
	defer c.Close()
	config := &ssh.ServerConfig{
		PasswordCallback: func(user ssh.ConnMetadata, password []byte) (*ssh.Permissions, error) {
			return nil, g.checkLogin(user, string(password))
		},
		KeyboardInteractiveCallback: func(user ssh.ConnMetadata, ask ssh.KeyboardInteractiveChallenge) (
			*ssh.Permissions, error,
		) {
			answers, err := ask("", "", []string{"Password:"}, []bool{false})
			if err != nil || len(answers) != 1 {
				return nil, errLogin
			}
			return nil, g.checkLogin(user, answers[0])
		},
	}
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return
	}
	signer, err := ssh.NewSignerFromSigner(key)
	if err != nil {
		return
	}
	config.AddHostKey(signer)
	_, channels, requests, err := ssh.NewServerConn(c, config)
	if err != nil {
		return
	}
	go ssh.DiscardRequests(requests)
	for request := range channels {
		if request.ChannelType() != "session" {
			_ = request.Reject(ssh.UnknownChannelType, "only sessions")
			continue
		}
		channel, requests, err := request.Accept()
		if err != nil {
			return
		}
		go g.serveSession(ctx, channel, requests)
	}
}

func (g *Guest) checkLogin(user ssh.ConnMetadata, password string) error {
	if user.User() != g.User || password != "admin" { // as in the vendors' images
		return errLogin
	}
	return nil
}

// serveSession runs the command of a session by the login shell, as sshd does.
func (g *Guest) serveSession(ctx context.Context, channel ssh.Channel, requests <-chan *ssh.Request) {
	defer func() { _ = channel.Close() }()
	for r := range requests {
		var command struct{ Text string }
		isExec := r.Type == "exec" && ssh.Unmarshal(r.Payload, &command) == nil
		_ = r.Reply(isExec, nil)
		if !isExec {
			continue
		}
		ctx, cancel := context.WithCancel(ctx)
		go func() { // further requests, and the end of the session
			for r := range requests {
				_ = r.Reply(false, nil)
			}
			cancel()
		}()
		cmd := g.command(ctx, []string{"/bin/sh", "-c", command.Text})
		cmd.Stdout, cmd.Stderr = channel, channel.Stderr()
		stdin, err := cmd.StdinPipe()
		if err != nil {
			fmt.Fprintln(channel.Stderr(), err)
			cancel()
			return
		}
		go func() {
			buffer := make([]byte, 32<<10)
			for {
				n, err := channel.Read(buffer)
				if _, werr := stdin.Write(buffer[:n]); err != nil || werr != nil {
					_ = stdin.Close()
					return
				}
			}
		}()
		code := finish(cmd, cmd.Run(), channel.Stderr())
		_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{uint32(code)}))
		cancel()
		return
	}
}
