package bookkeeper.hbase;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import org.apache.hbase.thirdparty.io.netty.channel.ChannelPromise;
import org.apache.hbase.thirdparty.io.netty.channel.EventLoop;
import org.apache.hbase.thirdparty.io.netty.channel.EventLoopGroup;
import org.apache.hbase.thirdparty.io.netty.channel.epoll.EpollEventLoopGroup;
import org.apache.hbase.thirdparty.io.netty.channel.epoll.EpollSocketChannel;
import org.apache.hbase.thirdparty.io.netty.util.concurrent.DefaultThreadFactory;

/**
 * Event loops whose connections end when the other machine acknowledges no packet for a time (TCP_USER_TIMEOUT).
 *
 * <p>Without it, the kernel keeps what was sent into a link that is cut, also for a process that has ended, and sends it
 * again when the link is back: for a quarter of an hour. HBase's client has no setting for it, and Java no such option.
 * Netty has it, in classes that are final: so each connection passes here when it is registered.
 */
final class LimitedLoops implements InvocationHandler {
  private final EventLoopGroup loops;
  private final int limitMs;

  private LimitedLoops(EventLoopGroup loops, int limitMs) {
    this.loops = loops;
    this.limitMs = limitMs;
  }

  /** Loops for connections of the class EpollSocketChannel. */
  static EventLoopGroup of(int limitMs) {
    return limited(EventLoopGroup.class, new EpollEventLoopGroup(0, new DefaultThreadFactory("gateway", true)), limitMs);
  }

  private static <T extends EventLoopGroup> T limited(Class<T> kind, T loops, int limitMs) {
    InvocationHandler handler = new LimitedLoops(loops, limitMs);
    return kind.cast(Proxy.newProxyInstance(LimitedLoops.class.getClassLoader(), new Class<?>[] {kind}, handler));
  }

  @Override
  public Object invoke(Object self, Method method, Object[] arguments) throws Throwable {
    if (method.getName().equals("register")) {
      Object registered = arguments[0];
      Object channel = registered instanceof ChannelPromise ? ((ChannelPromise) registered).channel() : registered;
      ((EpollSocketChannel) channel).config().setTcpUserTimeout(limitMs);
    }
    try {
      Object result = method.invoke(loops, arguments);
      return result instanceof EventLoop ? limited(EventLoop.class, (EventLoop) result, limitMs) : result;
    } catch (InvocationTargetException failure) {
      throw failure.getCause();
    }
  }
}
