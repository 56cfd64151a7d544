// Package moving is a client of NATS that moves to another broker: two
// connections overlap, and copies are recognised. Copy it.
//
//	client, err := moving.Connect(brokers, "b02", []string{"data.*"}, time.Second)
//	for message := range client.Messages { ... } // In a goroutine, also during moves.
//	err = client.Publish("data.b02", data)
//	err = client.Move("b04")
package moving

import (
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const header = "Regraft-Carried-regraft" // Its end is the overlay's namespace (kafka.namespace).

// Client is at one broker, or on its way to the next one.
type Client struct {
	Messages chan *nats.Msg // What was delivered, in order and without copies.

	brokers  map[string]string
	subjects []string
	pause    time.Duration

	publishing sync.Mutex // Guards conn.
	conn       *nats.Conn

	mu       sync.Mutex // Guards the following.
	pair     [2]string  // The old broker and the next one.
	isMoving bool
	kept     []arrival                // What the next broker has delivered.
	seen     map[identity][]time.Time // When the old one delivered what.
}

type arrival struct {
	at      time.Time
	message *nats.Msg
}

type identity [2]string

// Connect starts a client; brokers are addresses by name, and pause exceeds
// what a message, or an interest, takes to all brokers.
func Connect(brokers map[string]string, broker string, subjects []string, pause time.Duration) (*Client, error) {
	conn, err := nats.Connect(brokers[broker])
	if err != nil {
		return nil, err
	}
	c := &Client{
		Messages: make(chan *nats.Msg, 1<<16), brokers: brokers, subjects: subjects, pause: pause,
		conn: conn, pair: [2]string{broker, broker}, seen: map[identity][]time.Time{},
	}
	return c, c.subscribe(conn, broker)
}

// Publish publishes where the client is; during a move it waits until all
// earlier messages have arrived everywhere.
func (c *Client) Publish(subject string, data []byte) error {
	c.publishing.Lock()
	defer c.publishing.Unlock()
	return c.conn.Publish(subject, data)
}

// Move returns when the client is at another broker, or stays if that cannot be
// reached. After other errors messages may be lost.
func (c *Client) Move(broker string) error {
	arriving, err := nats.Connect(c.brokers[broker])
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.pair, c.isMoving = [2]string{c.pair[1], broker}, true
	c.mu.Unlock()
	time.Sleep(c.pause) // What is on its way to the next broker is seen here.
	subscribed := c.subscribe(arriving, broker)
	time.Sleep(c.pause) // The overlay confirms the subscriptions.

	c.publishing.Lock()
	leaving := c.conn
	c.conn = arriving
	flushed := leaving.Flush()
	time.Sleep(c.pause)
	c.publishing.Unlock()

	closed := leaving.StatusChanged(nats.CLOSED)
	drained := leaving.Drain()
	if drained == nil {
		<-closed
	}
	c.mu.Lock()
	c.isMoving = false
	for _, each := range c.kept {
		c.takeNew(each)
	}
	c.kept = nil
	c.mu.Unlock()
	time.Sleep(c.pause) // Some copies take longer to the next broker.
	c.mu.Lock()
	clear(c.seen)
	c.mu.Unlock()
	return errors.Join(subscribed, flushed, drained)
}

func (c *Client) subscribe(conn *nats.Conn, broker string) error {
	for _, subject := range c.subjects {
		if _, err := conn.Subscribe(subject, func(message *nats.Msg) { c.take(broker, message) }); err != nil {
			return err
		}
	}
	return conn.Flush()
}

func (c *Client) take(broker string, message *nats.Msg) {
	c.mu.Lock()
	defer c.mu.Unlock()
	each := arrival{time.Now(), message}
	switch {
	case !c.isMoving:
		c.takeNew(each)
	case broker == c.pair[1]:
		c.kept = append(c.kept, each)
	default:
		key := c.identify(message)
		c.seen[key] = append(c.seen[key], each.at)
		c.Messages <- message
	}
}

// takeNew passes on what is no copy of what the old broker has delivered.
func (c *Client) takeNew(each arrival) {
	if len(c.seen) > 0 {
		key := c.identify(each.message)
		for len(c.seen[key]) > 0 && c.seen[key][0].Before(each.at.Add(-c.pause)) {
			c.seen[key] = c.seen[key][1:] // An earlier one that equals this.
		}
		if len(c.seen[key]) > 0 && !c.seen[key][0].After(each.at.Add(c.pause)) {
			c.seen[key] = c.seen[key][1:]
			return
		}
	}
	c.Messages <- each.message
}

// identify returns publisher and number, or subject and payload: what is
// published at a broker has no stamp there.
func (c *Client) identify(message *nats.Msg) identity {
	stamp := strings.Split(message.Header.Get(header), " ") // Number, -, -, publisher, broker.
	if len(stamp) < 5 || stamp[4] == c.pair[0] || stamp[4] == c.pair[1] {
		return identity{message.Subject, string(message.Data)}
	}
	return identity{stamp[3], stamp[0]}
}
