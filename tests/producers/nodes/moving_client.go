// A program that uses the recipe for Go: it executes the lines "publish SUBJECT
// DATA" and "move BROKER", and writes what it is delivered.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"example.com/moving/moving"
)

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	var brokers map[string]string
	must(json.Unmarshal([]byte(os.Args[1]), &brokers))
	pause, err := time.ParseDuration(os.Args[2])
	must(err)
	client, err := moving.Connect(brokers, "b02", []string{"data.*", "same.>"}, pause)
	must(err)
	go func() {
		for message := range client.Messages {
			fmt.Printf("%s %s\n", message.Subject, message.Data)
			if message.Subject == "data.b01" {
				must(client.Publish("data.answers", message.Data))
			}
		}
	}()
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); fmt.Println("done") {
		words := strings.Fields(orders.Text())
		if words[0] == "move" {
			must(client.Move(words[1]))
		} else {
			must(client.Publish(words[1], []byte(words[2])))
		}
	}
}
